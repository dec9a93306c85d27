"""Schedules: jobs that are enqueued again and again, by a cron expression or at an interval."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from penstock.domain.job import JobDraft
from penstock.domain.job_errors import ScheduleInvalid
from penstock.domain.limits import DAY_MS, SECOND_MS

INTERVAL_MS_MIN = SECOND_MS
INTERVAL_MS_MAX = 366 * DAY_MS
CRON_LENGTH_MAX = 200

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


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleInvalid(f"There is no time zone {name!r}.") from error


def _instants(cron: str, after: datetime) -> CronSim:
    if len(cron) > CRON_LENGTH_MAX:
        raise ScheduleInvalid(f"A cron expression has at most {CRON_LENGTH_MAX} characters.")
    expression = _CRON_NAMES.get(cron.strip().lower(), cron)
    # With six, the first would be seconds.
    if len(expression.split()) != _CRON_FIELDS:
        raise ScheduleInvalid(f"A cron expression has {_CRON_FIELDS} fields, and {cron!r} has not.")
    try:
        return CronSim(expression, after)
    except CronSimError as error:
        raise ScheduleInvalid(f"The cron expression {cron!r} makes no sense: {error}.") from error
