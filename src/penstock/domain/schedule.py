"""Schedules: jobs that are enqueued again and again, by a cron expression or at an interval."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from penstock.domain.job import JobDraft
from penstock.domain.job_errors import ScheduleInvalid
from penstock.domain.limits import DAY_MS, HOUR_MS, SECOND_MS

INTERVAL_MS_MIN = SECOND_MS
INTERVAL_MS_MAX = 366 * DAY_MS
CRON_LENGTH_MAX = 200

CATCHES_UP_MS = 3 * HOUR_MS
"""How far the clock may be set back for a schedule that names its hour to wait rather than to fire once more."""

_CRON_FIELDS = 5

_CRON_NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When to enqueue, and what: each time it fires, `draft` is enqueued with an id of its own."""

    name: str
    queue: str
    draft: JobDraft
    cron: str | None = None
    """Five fields, or a name such as `@daily`."""
    zone: str = "UTC"
    interval_ms: int | None = None
    paused: bool = False
    next_at_ms: int | None = None
    last_at_ms: int | None = None
    last_job_id: str | None = None
    revision: int = 0


def check(schedule: Schedule) -> None:
    """Raise `ScheduleInvalid` unless it can be told when this schedule fires."""
    if (schedule.cron is None) == (schedule.interval_ms is None):
        raise ScheduleInvalid("A schedule has either a cron expression or an interval.")
    if schedule.interval_ms is not None and not INTERVAL_MS_MIN <= schedule.interval_ms <= INTERVAL_MS_MAX:
        raise ScheduleInvalid(f"An interval is from {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX} ms.")
    if next_fire_ms(schedule, 0) is None:
        raise ScheduleInvalid(f"The cron expression {schedule.cron!r} never fires.")


def next_fire_ms(schedule: Schedule, after_ms: int) -> int | None:
    """The first instant after `after_ms` at which it fires; None if there is none up to the end of the year 9999.

    Intervals count from the epoch, so that all nodes agree. Cron expressions are in the schedule's time zone, and do
    as Debian's cron does: one that names its minutes and hours fires right after the gap where the clocks are put
    forward over its instant, and once where they are put back and the instant comes twice. One with a star for
    either (`*`, `*/15`) goes by what the clocks show: nothing in a gap, and again in an hour that comes again.
    """
    if schedule.interval_ms is not None:
        return (after_ms // schedule.interval_ms + 1) * schedule.interval_ms
    assert schedule.cron is not None
    zone = _zone(schedule.zone)
    try:
        for instant in _instants(schedule.cron, datetime.fromtimestamp(after_ms / 1_000, UTC).astimezone(zone)):
            fires_ms = round(instant.timestamp() * 1_000)
            # In an hour that comes again, what it names has been already.
            if fires_ms > after_ms:
                return fires_ms
    except (OverflowError, ValueError):
        pass  # The calendar ends with the year 9999.
    return None


def catches_up(schedule: Schedule, now_ms: int) -> bool:
    """Whether a schedule that fired later than now, by a clock that was set back since, waits for its next instant.

    One that names its minutes and hours does if it was three hours or less, as Debian's cron does: it has fired already
    for the instants that come again. Others do if they have to wait no more than twice as long as they wait anyway.
    """
    if schedule.next_at_ms is None or schedule.last_at_ms is None or schedule.last_at_ms <= now_ms:
        return False
    if schedule.cron is not None and not _has_star(schedule.cron):
        return schedule.last_at_ms - now_ms <= CATCHES_UP_MS
    return schedule.next_at_ms - now_ms <= 2 * (schedule.next_at_ms - schedule.last_at_ms)


def _has_star(cron: str) -> bool:
    """Whether it has a star for its minutes or hours."""
    minutes, hours, *_ = _expression(cron).split()
    return minutes.startswith("*") or hours.startswith("*")


def _expression(cron: str) -> str:
    return _CRON_NAMES.get(cron.strip().lower(), cron)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleInvalid(f"There is no time zone {name!r}.") from error


def _instants(cron: str, after: datetime) -> CronSim:
    if len(cron) > CRON_LENGTH_MAX:
        raise ScheduleInvalid(f"A cron expression has at most {CRON_LENGTH_MAX} characters.")
    expression = _expression(cron)
    # With six, the first would be seconds.
    if len(expression.split()) != _CRON_FIELDS:
        raise ScheduleInvalid(
            f"A cron expression has {_CRON_FIELDS} fields, not {len(expression.split())} as in {cron!r}."
        )
    try:
        return CronSim(expression, after)
    except CronSimError as error:
        raise ScheduleInvalid(f"The cron expression {cron!r} is invalid: {error}.") from error
