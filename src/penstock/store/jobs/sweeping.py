"""The script of one pass of upkeep: what is over is removed, a bounded number of rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.gather import MEMBERS_KEPT_MS
from penstock.domain.job import JobState
from penstock.domain.limits import DAY_MS, REPEAT_WINDOW_MS
from penstock.store.jobs import gates
from penstock.store.jobs.gathers import remove_gathers
from penstock.store.jobs.removing import Doomed, remove, remove_rest
from penstock.store.jobs.script import listed
from penstock.store.jobs.settings import decode_settings

if TYPE_CHECKING:
    from penstock.domain.job_queue import JobQueueSettings
    from penstock.store.jobs.script import Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

OPERATIONS_KEPT_MS = 30 * DAY_MS
"""How long an operation can be looked at after it has ended."""

QUEUES_PER_PASS = 100

BYTES_PER_PASS_MAX = 16 * 1_048_576
"""How much of payloads and results one pass removes, but for the last, which goes whole."""

MARKS_MAX = 10_000

Place = tuple[int, int]


class Walk(NamedTuple):
    """A walk over the finished jobs of a queue in one state: by the queue's retention, or by the jobs' own."""

    queue_id: int
    state: JobState
    own: bool = False


class Progress:
    """How far the passes of this node have come. Only a hint: what is passed over is met again in the next round."""

    def __init__(self) -> None:
        self.after_queue = 0
        self.marks: dict[Walk, Place] = {}
        """The last finished job of each walk that was passed over since it is still needed."""

    def note(self, walk: Walk, place: Place | None) -> None:
        """Begin after this place the next time; None is the beginning."""
        if place is None:
            self.marks.pop(walk, None)
            return
        if len(self.marks) >= MARKS_MAX:
            self.marks.clear()
        self.marks[walk] = place


class _Bounds:
    """What is left of what one pass may remove."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.bytes = BYTES_PER_PASS_MAX

    @property
    def reached(self) -> bool:
        return self.rows <= 0 or self.bytes <= 0


def sweep(tx: Tx, around: Surroundings, progress: Progress) -> Script[bool]:
    """Do one pass, and say whether there is more."""
    bounds = _Bounds(around.limits.sweep_rows_max)
    bounds.rows -= yield from remove_rest(bounds.rows)
    for statement, until in (
        ("delete_expired_keys", (tx.now_ms,)),
        ("delete_empty_lanes", ()),
        ("delete_closed_breakers", ()),
        ("delete_full_buckets", (tx.now_ms * 1_000,)),
        ("delete_idle_gates", ((tx.now_ms - gates.KEPT_MS) * 1_000,)),
        ("delete_old_operations", (tx.now_ms - OPERATIONS_KEPT_MS,)),
        ("delete_spent", (tx.now_ms,)),
        ("expire_gathers", (tx.now_ms, tx.now_ms + MEMBERS_KEPT_MS)),
    ):
        if not bounds.reached:
            removed = yield statement, (*until, bounds.rows)
            bounds.rows -= len(removed)
    if not bounds.reached:
        bounds.rows -= yield from remove_gathers(tx, bounds.rows)
    if bounds.reached:
        return True
    return (yield from _finished(tx, progress, bounds))


def _finished(tx: Tx, progress: Progress, bounds: _Bounds) -> Script[bool]:
    """Remove finished jobs of some of the queues, and say whether there is more."""
    pages = yield "queues_to_sweep", (progress.after_queue, QUEUES_PER_PASS)
    if not pages:
        progress.after_queue = 0
        return False
    settings = {queue_id: decode_settings(column) for queue_id, column in pages}
    pairs = yield "finished_states", (progress.after_queue, pages[-1][0])
    more = False
    for queue_id, number in pairs:
        # Those of a queue that was made since the queues were read have their turn in the next round.
        if queue_id in settings:
            walk = Walk(queue_id, JobState(number))
            more |= yield from _past_retention(tx, progress, bounds, walk, settings[queue_id])
            if walk.state is not JobState.DEAD and not bounds.reached:
                more |= yield from _past_retention(tx, progress, bounds, walk._replace(own=True), settings[queue_id])
        if bounds.reached:
            return True
    if more:
        return True
    progress.after_queue = pages[-1][0] if len(pages) == QUEUES_PER_PASS else 0
    return bool(progress.after_queue)


def _past_retention(
    tx: Tx, progress: Progress, bounds: _Bounds, walk: Walk, settings: JobQueueSettings
) -> Script[bool]:
    """Remove finished jobs of one queue and state, and say whether there may be more."""
    queue_id, state, own = walk
    kept_ms = settings.dead_retention_ms if state is JobState.DEAD else settings.retention_ms
    # Who repeats a call whose answer was lost has to find the job that it was about.
    kept_ms = max(kept_ms, REPEAT_WINDOW_MS)
    mark = progress.marks.get(walk, (0, 0))
    # Each takes two rows at least, its own and that of its content.
    rows_max = max(1, bounds.rows // 2)
    if own:
        rows = yield "jobs_past_own_retention", (queue_id, state, tx.now_ms, *mark, rows_max)
    else:
        rows = yield "jobs_past_retention", (queue_id, state, tx.now_ms - kept_ms, *mark, rows_max, tx.now_ms)
    doomed: list[Doomed] = []
    members: list[str] = []
    for position, job_id, at_ms, details, size, needed, member in rows:
        if bounds.reached:
            break
        mark = at_ms, position
        bounds.rows -= 1
        if not needed:
            if member:
                members.append(job_id)
            job = Doomed(position, job_id, details)
            doomed.append(job)
            bounds.rows -= job.rows_at_once
            bounds.bytes -= size
    if members:
        yield "note_outcomes", (listed(members), int(state))
    leaves_more = yield from remove(doomed)
    tx.count(queue_id, state, -len(doomed))
    full = len(rows) == rows_max or bounds.reached
    progress.note(walk, mark if full else None)
    return full or leaves_more
