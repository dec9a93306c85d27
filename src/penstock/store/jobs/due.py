"""What has come due: delays and backoffs, offers, leases, timeouts and expiries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.job import JobState
from penstock.store.jobs.changes import Changes
from penstock.store.jobs.lanes import LaneRecord, lock_free_lanes
from penstock.store.jobs.rows import JobRecord
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.store.jobs.script import Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

HELD_MS = 20
"""When to look again at what is due, but in somebody else's hands."""

Due = tuple[int, int | None]
"""The position of a job that is due, and its lane."""


def lapse(changes: Changes, job: JobRecord, now_ms: int) -> None:
    """Give effect to what has come due for a job that is not finished."""
    if job.has_expired(now_ms):
        # Whatever else has come due. An offer of a job with a start rate may still be open.
        changes.expire(job)
        return
    if job.due_at is None or job.due_at > now_ms:
        return
    if job.state is JobState.OFFERED:
        changes.give_back(job)
    elif job.state is JobState.QUEUED:
        changes.unpark(job)
    elif job.state is not JobState.RUNNING:
        changes.come_due(job)
    elif job.times_out_at is not None and job.times_out_at <= now_ms:
        changes.time_out(job)
    else:
        changes.lose(job)


def give_effect(tx: Tx, around: Surroundings, due: Sequence[Due]) -> Script[int]:
    """Give effect to what has come due, but for jobs and lanes that somebody else holds now; say for how many jobs."""
    lane_ids = {lane_id for _, lane_id in due if lane_id is not None}
    lanes: dict[int, LaneRecord] = {}
    if lane_ids:
        lanes = yield from lock_free_lanes(lane_ids)
    positions = [position for position, lane_id in due if lane_id is None or lane_id in lanes]
    if not positions:
        return 0
    rows = yield "lock_due_jobs", (listed(positions), tx.now_ms)
    changes = Changes(tx, around, lanes)
    for job in map(JobRecord, rows):
        # Since it was found due it may have come back to another lane.
        if changes.has_lane(job):
            lapse(changes, job, tx.now_ms)
    yield from changes.save()
    return len(rows)


def advance(tx: Tx, around: Surroundings) -> Script[int | None]:
    """Give effect to what has come due in all queues, and say in how many ms to do so again."""
    due = yield "due_jobs", (tx.now_ms, around.limits.due_rows_max)
    done = 0
    if due:
        done = yield from give_effect(tx, around, [(position, lane_id) for position, lane_id in due])
    [(next_at_ms,)] = yield "next_due", ()
    if next_at_ms is None:
        return None
    next_in_ms: int = max(next_at_ms - tx.now_ms, 0)
    return next_in_ms if next_in_ms or done else HELD_MS
