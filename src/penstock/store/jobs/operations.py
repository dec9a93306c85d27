"""Scripts about operations: something done to many jobs, a bounded step at a time, at a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.domain.job import WAITING, JobState
from penstock.domain.job_errors import OperationDoesNotExist
from penstock.domain.job_request import digest_job
from penstock.domain.limits import REPEAT_WINDOW_MS, SECOND_MS
from penstock.domain.operation import JobFilter, Operation, OperationKind, OperationState
from penstock.store.jobs import queues
from penstock.store.jobs.changes import Changes, load
from penstock.store.jobs.interventions import reopen_lane
from penstock.store.jobs.reading import PAGE_BYTES_MAX, conditions, is_loose, within_bytes
from penstock.store.jobs.removing import Doomed, remove
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.job_queue import JobQueue
    from penstock.store.jobs.rows import JobRecord
    from penstock.store.jobs.script import Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

STEPS_PER_SECOND = 10

STEP_JOBS_MAX = 200
"""How many jobs one step changes, so that it never holds up requests for long."""

OPERATIONS_PER_CALL = 10

FORGOTTEN_MAX = 100
"""How many old operations of its queue a new one makes forgotten."""

HELD_MS = 100
"""When to look again at operations that are due, but in another node's hands."""

STATES = {
    OperationKind.REQUEUE: frozenset({JobState.DEAD}),
    OperationKind.PURGE: WAITING,
}
"""The jobs that each kind is for."""

_encode = msgspec.json.Encoder().encode
_decode_filter = msgspec.json.Decoder(JobFilter).decode


class _Running(NamedTuple):
    """An operation whose row is locked."""

    id: str
    queue_id: int
    kind: OperationKind
    wanted: JobFilter
    rate: int | None
    done: int
    cursor: int
    last: int
    at_most: int | None

    @property
    def states(self) -> list[JobState]:
        """The states whose jobs it is about."""
        meant = STATES[self.kind]
        return sorted(meant & set(self.wanted.states) if self.wanted.states else meant)


class _Ahead(NamedTuple):
    """The next jobs of an operation by their ids, and the position that it has got to with them."""

    job_ids: list[str]
    cursor: int


class Asked(NamedTuple):
    """What somebody asks for: see the port."""

    id: str
    kind: OperationKind
    queue: JobQueue
    wanted: JobFilter
    rate: int | None
    limit: int | None


def start(tx: Tx, around: Surroundings, asked: Asked) -> Script[Operation]:
    """Begin an operation on the jobs that there are now, or find the one of this id."""
    queue = yield from queues.keep(tx, asked.queue.name)
    if (yield "spent", (listed([asked.id]), tx.now_ms)):
        # It was about a queue of this name that was deleted.
        raise OperationDoesNotExist(asked.id)
    wanted = _encode(msgspec.structs.replace(asked.wanted, queue=queue.name))
    yield "insert_operation", (asked.id, queue.id, int(asked.kind), wanted, asked.rate, tx.now_ms, asked.limit)
    kept = around.limits.operations_kept_per_queue_max
    yield "forget_operations", (queue.id, kept, FORGOTTEN_MAX, tx.now_ms - REPEAT_WINDOW_MS)
    return (yield from find(tx, asked.id))


def find(_tx: Tx, operation_id: str) -> Script[Operation]:
    """Find an operation."""
    rows = yield "operation_by_id", (operation_id,)
    if not rows:
        raise OperationDoesNotExist(operation_id)
    return _operation(rows[0])


def page(_tx: Tx, queue: JobQueue, limit: int) -> Script[list[Operation]]:
    """List the operations of a queue, the newest first."""
    rows = yield "operations_of", (queue.id, limit)
    return [_operation(row) for row in rows]


def cancel(tx: Tx, operation_id: str) -> Script[Operation]:
    """Stop an operation."""
    yield from find(tx, operation_id)
    yield "cancel_operation", (operation_id, tx.now_ms)
    return (yield from find(tx, operation_id))


def advance(tx: Tx, around: Surroundings) -> Script[int | None]:
    """Do a step of those that are due, all together within one step's bound, and say in how many ms the next is."""
    left = STEP_JOBS_MAX
    taken = yield "due_operations", (tx.now_ms, OPERATIONS_PER_CALL)
    for row in taken:
        if left <= 0:
            break
        operation_id, queue_id, kind, wanted, *rest = row
        running = _Running(operation_id, queue_id, OperationKind(kind), _decode_filter(wanted), *rest)
        left -= yield from _step(tx, around, running, left)
    [(next_at_ms,)] = yield "next_operation", ()
    if next_at_ms is None:
        return None
    if next_at_ms <= tx.now_ms:
        return 0 if taken else HELD_MS
    due_in_ms: int = next_at_ms - tx.now_ms
    return due_in_ms


def _step(tx: Tx, around: Surroundings, running: _Running, jobs_max: int) -> Script[int]:
    """Do one step, and say to how many jobs."""
    count = jobs_max if running.rate is None else min(jobs_max, max(1, running.rate // STEPS_PER_SECOND))
    if running.at_most is not None:
        count = min(count, running.at_most - running.done)
    ahead = yield from _ahead(tx, around, running, count)
    if running.kind is OperationKind.REQUEUE and (yield "finished_unique", (listed(ahead.job_ids),)):
        # Nobody else may enqueue their unique keys meanwhile. Before the jobs are locked, as those who enqueue do it.
        yield "lock_queue", (running.queue_id,)
    changes, jobs = yield from load(tx, around, ahead.job_ids)
    # Between being found and being locked, a job may have moved on.
    meant = [job for job in jobs.values() if job.state in running.states]
    if running.kind is OperationKind.PURGE:
        yield from _purge(tx, changes, meant)
    else:
        meant = yield from _requeue(changes, running, meant)
    finished = ahead.cursor >= running.last or running.done + len(meant) == running.at_most
    pause_ms = 0 if running.rate is None else -(-len(meant) * SECOND_MS // running.rate)
    yield (
        "advance_operation",
        (
            running.id,
            int(OperationState.DONE if finished else OperationState.RUNNING),
            running.done + len(meant),
            ahead.cursor,
            None if finished else tx.now_ms + pause_ms,
            tx.now_ms if finished else None,
        ),
    )
    return len(meant)


def _ahead(tx: Tx, around: Surroundings, running: _Running, count: int) -> Script[_Ahead]:
    """Find the next jobs that match, among a bounded number of them."""
    wanted, states = running.wanted, running.states
    ceiling = running.last
    if is_loose(wanted) or wanted.tag is not None:
        rows_max = max(1, around.limits.list_rows_max // max(1, len(states)))
        for state in states:
            for (position,) in (yield "ceiling", (running.queue_id, int(state), running.cursor, rows_max)):
                ceiling = min(ceiling, position)
    found: list[tuple[int, str]] = []
    for state in states:
        place = (running.queue_id, int(state), running.cursor, ceiling, count)
        rows = yield "jobs_ahead", (*place, *conditions(tx, wanted), wanted.tag)
        found += [(position, job_id) for position, job_id in rows]
    found.sort()
    taken = found[:count]
    if running.kind is OperationKind.PURGE:
        # To remove much at once takes long, too.
        shown, _ = yield from within_bytes([position for position, _ in taken], PAGE_BYTES_MAX)
        taken = taken[: len(shown)]
    cut_off = len(taken) == count or len(taken) < len(found)
    return _Ahead([job_id for _, job_id in taken], taken[-1][0] if cut_off else ceiling)


def _purge(tx: Tx, changes: Changes, jobs: list[JobRecord]) -> Script[None]:
    for job in jobs:
        changes.forget(job)
        # Who follows its events finds it gone.
        tx.changed.add(job.id)
    yield from changes.save()
    spent = yield from _remember(tx, jobs)
    yield from remove([Doomed(job.position, job.id, job.attempts + job.events) for job in jobs], spent)


def _remember(tx: Tx, jobs: list[JobRecord]) -> Script[set[str]]:
    """Keep the ids of jobs that may still be enqueued by a repeat, and return them."""
    young = [job.id for job in jobs if job.enqueued_at > tx.now_ms - REPEAT_WINDOW_MS]
    rows = (yield "jobs_with_ids", (listed(young),)) if young else []
    spent: list[Sequence[object]] = [
        (job_id, digest_job(queue, task, tenant, payload), enqueued_at_ms + REPEAT_WINDOW_MS)
        for job_id, queue, task, tenant, payload, enqueued_at_ms in rows
    ]
    if spent:
        yield "note_spent", spent
    return set(young)


def _requeue(changes: Changes, running: _Running, jobs: list[JobRecord]) -> Script[list[JobRecord]]:
    """Queue dead jobs again, but for those whose unique keys another one has by now; return those that were."""
    keys = [(job.tenant, job.unique_key) for job in jobs if job.unique_key is not None]
    taken: set[tuple[str, str | None]] = set()
    if keys:
        rows = yield "unique_jobs", (running.queue_id, listed(keys))
        taken = {(tenant, unique_key) for tenant, unique_key, *_ in rows}
    requeued = []
    for job in jobs:
        if job.unique_key is not None:
            if (job.tenant, job.unique_key) in taken:
                continue
            taken.add((job.tenant, job.unique_key))
        yield from reopen_lane(changes, job)
        changes.retry(job)
        requeued.append(job)
    yield from changes.save()
    return requeued


def _operation(row: Row) -> Operation:
    operation_id, kind, queue, wanted, rate, state, done, started_at_ms, ended_at_ms, limit = row
    return Operation(
        id=operation_id,
        kind=OperationKind(kind),
        queue=queue,
        wanted=_decode_filter(wanted),
        rate=rate,
        limit=limit,
        state=OperationState(state),
        done=done,
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
    )
