"""Scripts that read: one job with its attempts, pages of jobs, dead jobs by what they died of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.job import AttemptOutcome, Job, JobState
from penstock.domain.job_errors import JobDoesNotExist
from penstock.store.job_port import DeadGroup, LeaseState, LeaseStatus
from penstock.store.jobs import queues
from penstock.store.jobs.rows import attempt_of, job_of
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.job import Lease
    from penstock.domain.job_queue import JobQueue
    from penstock.domain.operation import JobFilter
    from penstock.store.jobs.script import Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

POSITION_END = 2**63 - 1
"""Beyond every position."""

PAGE_BYTES_MAX = 8 * 1_048_576
"""How much one page holds of payloads, results and failures, but for its last job, which is shown whole."""

SOURCES_MAX = 64
"""How many stretches of an index one page is put together from, before it is rather found by walking over all jobs."""

_ALL_STATES = tuple(JobState)


class Source(NamedTuple):
    """One index to walk: the statements that find its floor and its positions, and their further arguments."""

    floor: str
    floor_arguments: tuple[object, ...]
    positions: str
    arguments: tuple[object, ...]
    exact: bool
    """Whether all that is walked over matches."""


class Found(NamedTuple):
    """What a bounded search found."""

    jobs: list[Job]
    before: int | None
    """Where to go on, below this position; None if there is nothing more."""
    bytes_left: int


class Tally(NamedTuple):
    """A stretch of the dead jobs of a queue, grouped, and where the next one begins; None if there is none."""

    groups: dict[tuple[str, str], DeadGroup]
    before: int | None


def job(_tx: Tx, around: Surroundings, job_id: str) -> Script[Job]:
    """Read one job with its attempts."""
    rows = yield "job_by_id", (job_id,)
    if not rows:
        raise JobDoesNotExist(job_id)
    position = rows[0][0]
    attempts = yield "attempts_of", (position, around.limits.attempts_shown_max)
    return job_of(rows[0], tuple(attempt_of(row) for row in reversed(attempts)))


def lease_statuses(tx: Tx, leases: Sequence[Lease]) -> Script[list[LeaseStatus]]:
    """Read where leases stand."""
    rows = yield "leases", (listed((lease.job_id, lease.fence) for lease in leases),)
    found = {(job_id, fence): _lease_status(rest, fence, tx.now_ms) for job_id, fence, *rest in rows}
    gone = LeaseStatus(LeaseState.OVER)
    return [found.get((lease.job_id, lease.fence), gone) for lease in leases]


def _lease_status(row: Row, fence: int, now_ms: int) -> LeaseStatus:
    state, job_fence, due_at_ms, times_out_at_ms, finished_at_ms, outcome, answered, expires_at_ms = row
    if outcome is None:
        # Never accepted.
        if state == JobState.OFFERED and job_fence == fence and due_at_ms > now_ms:
            return LeaseStatus(LeaseState.OFFERED, due_at_ms, due_at_ms - now_ms)
        # That its job expired is not its worker's fault, whether anybody has given effect to it or not.
        ended = finished_at_ms is not None or (expires_at_ms is not None and expires_at_ms <= now_ms)
        return LeaseStatus(LeaseState.OVER if ended and job_fence == fence else LeaseState.LAPSED)
    if outcome == AttemptOutcome.RUNNING:
        if due_at_ms > now_ms:
            return LeaseStatus(LeaseState.RUNNING, due_at_ms, due_at_ms - now_ms)
        return LeaseStatus(LeaseState.OVER if times_out_at_ms <= now_ms else LeaseState.LAPSED)
    if answered:
        return LeaseStatus(LeaseState.REPORTED)
    return LeaseStatus(LeaseState.LAPSED if outcome == AttemptOutcome.LOST else LeaseState.OVER)


def page(tx: Tx, around: Surroundings, wanted: JobFilter, before: int, limit: int, bytes_max: int) -> Script[Found]:
    """Look for jobs below a position, the newest first, among a bounded number of them."""
    sources = yield from _sources(tx, wanted)
    floor: int | None = None
    for source in sources:
        if not source.exact:
            rows_max = max(1, around.limits.list_rows_max // len(sources))
            for (position,) in (yield source.floor, (before, rows_max, *source.floor_arguments)):
                floor = position if floor is None else max(floor, position)
    positions: list[int] = []
    for source in sources:
        rows = yield source.positions, (before, floor or 0, limit, *conditions(tx, wanted), *source.arguments)
        positions += [position for (position,) in rows]
    positions = sorted(positions, reverse=True)[:limit]
    if not positions:
        return Found([], floor, bytes_max)
    shown, bytes_left = yield from within_bytes(positions, bytes_max)
    rows = yield "jobs_at", (listed(shown),)
    jobs = sorted((job_of(row) for row in rows), key=lambda job: job.position, reverse=True)
    cut_off = len(shown) < len(positions) or len(shown) == limit
    return Found(jobs, shown[-1] if cut_off else floor, bytes_left)


def _sources(tx: Tx, wanted: JobFilter) -> Script[list[Source]]:
    """Choose the indexes by which the jobs are found."""
    queue_ids = yield from _queue_ids(tx, wanted)
    among = None if queue_ids is None else listed(queue_ids)
    states = wanted.states or _ALL_STATES
    mask = sum(1 << state for state in set(states))
    loose = is_loose(wanted)
    exact = not loose and queue_ids is None and not wanted.states
    if wanted.tag is not None:
        return [Source("tag_floor", (wanted.tag,), "positions_by_tag", (mask, among, wanted.tag), exact)]
    if queue_ids is None and wanted.states:
        rows = yield "queue_ids", (SOURCES_MAX + 1,)
        queue_ids = [queue_id for (queue_id,) in rows]
    if queue_ids is None or len(queue_ids) * len(states) > SOURCES_MAX:
        yield "walk_in_order", ()
        return [Source("any_floor", (), "positions_of_any", (mask, among), exact)]
    pairs = [(queue_id, state) for queue_id in queue_ids for state in sorted(set(states))]
    return [Source("state_floor", pair, "positions_by_state", pair, not loose) for pair in pairs]


def _queue_ids(tx: Tx, wanted: JobFilter) -> Script[list[int] | None]:
    """Find the queues that are meant; None is all."""
    if wanted.queue is not None:
        queue = yield from queues.find(tx, wanted.queue)
        return [queue.id] if wanted.queues is None or wanted.queue in wanted.queues else []
    if wanted.queues is None:
        return None
    rows = yield "queues_among", (listed(wanted.queues),)
    return [queue_id for (queue_id,) in rows]


def is_loose(wanted: JobFilter) -> bool:
    """Whether something is asked for that no index answers."""
    return any(
        condition is not None
        for condition in (
            wanted.task,
            wanted.tenant,
            wanted.failure_kind,
            wanted.enqueued_from_ms,
            wanted.enqueued_before_ms,
        )
    )


def conditions(tx: Tx, wanted: JobFilter) -> tuple[object, ...]:
    """What statements that look for jobs take for: task, tenant, kind of failure, and when it was enqueued."""
    return (
        wanted.task,
        wanted.tenant,
        wanted.failure_kind,
        *instants(tx, wanted.enqueued_from_ms, wanted.enqueued_before_ms),
    )


def instants(tx: Tx, from_ms: int | None, before_ms: int | None) -> tuple[int, int]:
    """Return bounds that callers give by the wall clock in the store's own time; None is no bound."""
    return (
        0 if from_ms is None else from_ms + tx.ahead_ms,
        POSITION_END if before_ms is None else before_ms + tx.ahead_ms,
    )


def within_bytes(positions: list[int], bytes_max: int) -> Script[tuple[list[int], int]]:
    """Cut a page off after the job that fills it up; its first job is always in it. Say how many bytes are left."""
    sizes = dict((yield "content_sizes", (listed(positions),)))
    left = bytes_max
    for shown, position in enumerate(positions, 1):
        left -= sizes.get(position, 0)
        if left <= 0:
            return positions[:shown], 0
    return positions, left


def dead_tally(_tx: Tx, queue: JobQueue, before: int, rows_max: int) -> Script[Tally]:
    """Group a bounded stretch of the dead jobs of a queue by task and kind of failure."""
    rows = yield "dead_page", (queue.id, before, rows_max)
    groups: dict[tuple[str, str], DeadGroup] = {}
    for _, job_id, task, kind, finished_at_ms in rows:
        one = DeadGroup(task, kind, 1, finished_at_ms, job_id)
        groups[task, kind] = joined(groups.get((task, kind)), one)
    return Tally(groups, rows[-1][0] if len(rows) == rows_max else None)


def joined(group: DeadGroup | None, other: DeadGroup) -> DeadGroup:
    """Add what was found of a group later to what was found before; the newest job stays its example."""
    if group is None:
        return other
    return DeadGroup(
        group.task, group.kind, group.count + other.count, max(group.last_at_ms, other.last_at_ms), group.example_id
    )
