"""Scripts about job queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.job import JobState
from penstock.domain.job_errors import JobQueueDoesNotExist, JobStateConflict
from penstock.domain.job_queue import JobCounts, JobQueue
from penstock.domain.limits import REPEAT_WINDOW_MS
from penstock.store.jobs.lanes import lock_lanes_by_key, save_lanes
from penstock.store.jobs.script import listed
from penstock.store.jobs.settings import decode_settings, encode_settings

if TYPE_CHECKING:
    from penstock.domain.job_queue import JobQueueSettings
    from penstock.store.jobs.script import Row, Script, Tx

OLDEST_ROWS = 100
"""How many of a queue's first jobs are looked at for the one that has waited for the longest."""


def create(tx: Tx, name: str, settings: JobQueueSettings) -> Script[tuple[JobQueue, bool]]:
    """Create a queue, or find the one of this name."""
    rows = yield "insert_queue", (name, encode_settings(settings), tx.now_ms)
    if rows:
        return queue_of(rows[0]), True
    return (yield from find(tx, name)), False


def find(_tx: Tx, name: str) -> Script[JobQueue]:
    """Find a queue by its name."""
    rows = yield "queue_named", (name,)
    if not rows:
        raise _missing(name)
    return queue_of(rows[0])


def keep(_tx: Tx, name: str) -> Script[JobQueue]:
    """Find a queue by its name, and keep it from being deleted until this transaction is over."""
    rows = yield "queue_kept", (name,)
    if not rows:
        raise _missing(name)
    return queue_of(rows[0])


def page(_tx: Tx, after: str, limit: int) -> Script[list[JobQueue]]:
    """List queues by name."""
    rows = yield "queues_after", (after, limit)
    return [queue_of(row) for row in rows]


def save(
    tx: Tx, queue: JobQueue, settings: JobQueueSettings | None, *, paused: bool | None, call: str | None
) -> Script[JobQueue | None]:
    """Change a queue, unless it was changed by somebody else; or find that this call did so before."""
    if call is not None and (yield from _was_done(tx, call)):
        return (yield from _present(queue))
    settings = queue.settings if settings is None else settings
    paused = queue.paused if paused is None else paused
    rows = yield "save_queue", (queue.id, queue.revision, encode_settings(settings), int(paused))
    if not rows:
        now = yield from _present(queue)
        # A repetition finds the queue as it was to be. Or it waited for its first try, and others came between.
        found_done = now.revision == queue.revision + 1 and now.settings == settings and now.paused == paused
        return now if found_done or (call is not None and (yield from _was_done(tx, call))) else None
    if call is not None:
        yield "note_spent", (call, None, tx.now_ms + REPEAT_WINDOW_MS)
    if settings is not queue.settings:
        yield from _widen(tx, queue, settings)
        if queue.settings.start_rates or settings.start_rates:
            yield "rearm_gates", (queue.id,)
    if not paused:
        # It may have been paused, or a breaker may have gone: whoever waits has a look.
        by_state = yield from _by_state(queue)
        if by_state[JobState.QUEUED]:
            tx.wake(queue.id, by_state[JobState.QUEUED])
    return queue_of(rows[0])


def _widen(tx: Tx, queue: JobQueue, settings: JobQueueSettings) -> Script[None]:
    """Let those go who have a place by the new width of their key."""
    # What the caller knows of the settings before may be out of date, so they are not compared.
    keys = queue.settings.lanes.keys() | settings.lanes.keys()
    if keys:
        lanes = yield from lock_lanes_by_key(queue.id, keys)
        for lane in lanes:
            lane.changed = True
        yield from save_lanes(tx, lanes)


def _was_done(tx: Tx, call: str) -> Script[bool]:
    return bool((yield "spent", (listed([call]), tx.now_ms)))


def _present(queue: JobQueue) -> Script[JobQueue]:
    """Read a queue as it is now."""
    rows = yield "queue_numbered", (queue.id,)
    if not rows:
        raise _missing(queue.name)
    return queue_of(rows[0])


def delete(tx: Tx, queue: JobQueue) -> Script[None]:
    """Delete a queue that nothing is left of. Its keys, lanes and buckets go with the sweeper."""
    found = yield "queue_to_delete", (queue.id,)
    if not found:
        return
    [(use,)] = yield "queue_in_use", (queue.id,)
    if use is not None:
        raise JobStateConflict(f"The job queue {queue.name!r} still has {use}.")
    yield "note_spent_operations", (queue.id, tx.now_ms - REPEAT_WINDOW_MS, tx.now_ms + REPEAT_WINDOW_MS)
    for statement in (
        "delete_queue",
        "delete_queue_counts",
        "delete_queue_breakers",
        "delete_queue_gates",
        "delete_queue_operations",
    ):
        yield statement, (queue.id,)


def counts(tx: Tx, queue: JobQueue) -> Script[JobCounts]:
    """Read the counters, and since when the oldest has waited."""
    by_state = yield from _by_state(queue)
    [(since_ms,)] = yield "oldest_queued", (queue.id, OLDEST_ROWS)
    return JobCounts(by_state=by_state, oldest_due_ms=None if since_ms is None else max(0, tx.now_ms - since_ms))


def _by_state(queue: JobQueue) -> Script[dict[JobState, int]]:
    by_state = dict.fromkeys(JobState, 0)
    rows = yield "counts", (queue.id,)
    for state, number in rows:
        by_state[JobState(state)] = number
    return by_state


def queue_of(row: Row) -> JobQueue:
    """Read a queue from its row."""
    queue_id, name, settings, paused, revision, created_at_ms = row
    return JobQueue(
        id=queue_id,
        name=name,
        settings=decode_settings(settings),
        paused=bool(paused),
        revision=revision,
        created_at_ms=created_at_ms,
    )


def _missing(name: str) -> JobQueueDoesNotExist:
    return JobQueueDoesNotExist(f"There is no job queue {name!r}.")
