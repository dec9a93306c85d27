"""Scripts about schedules: kept, and fired when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job_errors import ScheduleDoesNotExist, ScheduleInvalid
from penstock.domain.schedule import Schedule, check, next_fire_ms
from penstock.store.job_port import Enqueued
from penstock.store.jobs import queues
from penstock.store.jobs.enqueueing import enqueue

if TYPE_CHECKING:
    from penstock.store.jobs.script import Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

FIRED_MAX = 50
"""How many schedules one call fires."""

HELD_MS = 100
"""When to look again at schedules that are due, but in another node's hands."""

_COLUMNS = 5

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Schedule).decode


def save(tx: Tx, schedule: Schedule) -> Script[Schedule]:
    """Create or replace a schedule; one that is there just so stays as it is."""
    check(schedule)
    queue = yield from queues.keep(tx, schedule.queue)
    spec = _encode(msgspec.structs.replace(schedule, next_at_ms=None, last_at_ms=None, last_job_id=None, revision=0))
    for row in (yield "schedule_to_save", (schedule.name,)):
        if bytes(row[0]) == spec:
            return _schedule(row)
    next_at_ms = None if schedule.paused else next_fire_ms(schedule, tx.now_ms)
    [row] = yield "save_schedule", (schedule.name, queue.id, spec, int(schedule.paused), next_at_ms)
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


def fire(tx: Tx, around: Surroundings) -> Script[int | None]:
    """Enqueue what is due, and say in how many ms the next is."""
    due = yield "due_schedules", (tx.now_ms, FIRED_MAX)
    for row in due:
        schedule = _schedule(row[:_COLUMNS])
        draft = msgspec.structs.replace(schedule.draft, id=around.ids.new_id(), idempotency_key=None)
        # Its row is ours until the commit, and then no longer due: so nobody else fires it, nor does a repetition.
        [enqueued] = yield from enqueue(tx, queues.queue_of(row[_COLUMNS:]), [draft], bounded=False)
        assert isinstance(enqueued, Enqueued), enqueued
        yield "schedule_fired", (schedule.name, _next_at_ms(tx, schedule), schedule.next_at_ms, enqueued.job_id)
    [(next_at_ms,)] = yield "next_schedule", ()
    if next_at_ms is None:
        return None
    if next_at_ms <= tx.now_ms:
        return 0 if due else HELD_MS
    due_in_ms: int = next_at_ms - tx.now_ms
    return due_in_ms


def _next_at_ms(tx: Tx, schedule: Schedule) -> int | None:
    try:
        return next_fire_ms(schedule, tx.now_ms)
    except ScheduleInvalid:
        # It was checked when it was saved, so its time zone was taken off this system. Those of others go on; this one
        # stands still, which its next instant shows, until it is saved again.
        return None


def _schedule(row: Row) -> Schedule:
    spec, next_at_ms, last_at_ms, last_job_id, revision = row
    return msgspec.structs.replace(
        _decode(spec), next_at_ms=next_at_ms, last_at_ms=last_at_ms, last_job_id=last_job_id, revision=revision
    )
