"""Scripts about schedules: kept, and fired when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.domain.job_errors import ScheduleDoesNotExist, ScheduleInvalid
from penstock.domain.schedule import Schedule, catches_up, check, next_fire_ms
from penstock.store.job_port import Enqueued
from penstock.store.jobs import queues
from penstock.store.jobs.enqueueing import enqueue

if TYPE_CHECKING:
    from penstock.store.jobs.script import Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

FIRED_MAX = 50
"""How many schedules one call fires."""

PLANNED_MAX = 200
"""How many schedules one call plans again."""

HELD_MS = 100
"""When to look again at schedules that are due, but in another node's hands."""

_COLUMNS = 5

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Schedule).decode


def save(tx: Tx, schedule: Schedule) -> Script[Schedule]:
    """Create or replace a schedule; one that is there just so stays as it is."""
    check(schedule)
    queue = yield from queues.keep(tx, schedule.queue)
    spec = msgspec.structs.replace(schedule, next_at_ms=None, last_at_ms=None, last_job_id=None, revision=0)
    for row in (yield "schedule_to_save", (schedule.name,)):
        # Not compared byte by byte: an older version wrote fewer fields.
        if _decode(row[0]) == spec:
            return _schedule(row)
    next_at_ms = None if schedule.paused else next_fire_ms(schedule, tx.wall_ms)
    [row] = yield "save_schedule", (schedule.name, queue.id, _encode(spec), int(schedule.paused), next_at_ms)
    return _schedule(row)


def find(_tx: Tx, name: str) -> Script[Schedule]:
    """Find a schedule by its name."""
    rows = yield "schedule_named", (name,)
    if not rows:
        raise ScheduleDoesNotExist(name)
    return _schedule(rows[0])


def page(_tx: Tx, after: str, limit: int) -> Script[list[Schedule]]:
    """List schedules by name."""
    rows = yield "schedules_after", (after, limit)
    return [_schedule(row) for row in rows]


def delete(_tx: Tx, name: str, met: set[str]) -> Script[None]:
    """Delete a schedule. `met` is what earlier runs of the same call have deleted, committed or not."""
    rows = yield "delete_schedule", (name,)
    if rows:
        met.add(name)
    elif name not in met:
        raise ScheduleDoesNotExist(name)


class Fired(NamedTuple):
    """In how many ms the next schedule is due, if there is one, and what the wall clock showed."""

    next_in_ms: int | None
    wall_ms: int


def fire(tx: Tx, around: Surroundings) -> Script[Fired]:
    """Enqueue what is due."""
    due = yield "due_schedules", (tx.wall_ms, FIRED_MAX)
    for row in due:
        schedule = _schedule(row[:_COLUMNS])
        draft = msgspec.structs.replace(schedule.draft, id=around.ids.new_id(), idempotency_key=None)
        # Its row is ours until the commit, and then no longer due: so nobody else fires it, nor does a repetition.
        [enqueued] = yield from enqueue(tx, around, queues.queue_of(row[_COLUMNS:]), [draft], bounded=False)
        assert isinstance(enqueued, Enqueued), enqueued
        yield "schedule_fired", (schedule.name, _next_at_ms(tx, schedule), schedule.next_at_ms, enqueued.job_id)
    [(next_at_ms,)] = yield "next_schedule", ()
    if next_at_ms is None:
        return Fired(None, tx.wall_ms)
    if next_at_ms <= tx.wall_ms:
        return Fired(0 if due else HELD_MS, tx.wall_ms)
    return Fired(next_at_ms - tx.wall_ms, tx.wall_ms)


class Planned(NamedTuple):
    """How many schedules were planned anew, and after which name to go on, if there are more."""

    number: int
    after: str | None


def plan_again(tx: Tx, after: str) -> Script[Planned]:
    """Correct what was planned while the clock was ahead, for a page of schedules.

    Whatever has been changed meanwhile was planned by the clock as it is now.
    """
    number = 0
    rows = yield "schedules_after", (after, PLANNED_MAX)
    schedules = [_schedule(row) for row in rows]
    for schedule in schedules:
        if schedule.next_at_ms is None or catches_up(schedule, tx.wall_ms):
            continue
        next_at_ms = _next_at_ms(tx, schedule)
        if next_at_ms is not None and next_at_ms < schedule.next_at_ms:
            yield "plan_schedule", (schedule.name, next_at_ms, schedule.next_at_ms)
            number += 1
    return Planned(number, schedules[-1].name if len(schedules) == PLANNED_MAX else None)


def _next_at_ms(tx: Tx, schedule: Schedule) -> int | None:
    try:
        return next_fire_ms(schedule, tx.wall_ms)
    except ScheduleInvalid:
        # It was checked when it was saved, so its time zone was taken off this system. Those of others go on; this one
        # stands still, which its next instant shows, until it is saved again.
        return None


def _schedule(row: Row) -> Schedule:
    spec, next_at_ms, last_at_ms, last_job_id, revision = row
    return msgspec.structs.replace(
        _decode(spec), next_at_ms=next_at_ms, last_at_ms=last_at_ms, last_job_id=last_job_id, revision=revision
    )
