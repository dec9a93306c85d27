"""What has come due: delays and backoffs, offers, leases and timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import JobState
from penstock.store.jobs.changes import Changes
from penstock.store.jobs.lanes import LaneRecord, lock_free_lanes
from penstock.store.jobs.rows import JobRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.store.jobs.script import Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

QUEUES_MAX = 100
"""How many queues one call takes care of."""

HELD_MS = 20
"""When to look again at what is due, but in somebody else's hands."""

Due = tuple[int, int | None]
"""The position of a job that is due, and its lane."""

_encode = msgspec.json.Encoder().encode


def lapse(changes: Changes, job: JobRecord, now_ms: int) -> None:
    """Give effect to what has come due for a job."""
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
    rows = yield "lock_due_jobs", (_encode(positions).decode(), tx.now_ms)
    changes = Changes(tx, around, lanes)
    for row in rows:
        lapse(changes, JobRecord(row), tx.now_ms)
    yield from changes.save()
    return len(rows)


def advance(tx: Tx, around: Surroundings) -> Script[int | None]:
    """Give effect to what has come due in all queues, and say in how many ms to do so again."""
    left = around.limits.due_rows_max
    done = 0
    for queue_id, due_at in (yield "due_queues", (QUEUES_MAX,)):
        if due_at > tx.now_ms or left == 0:
            break
        due = yield "due_jobs", (queue_id, tx.now_ms, left)
        left -= len(due)
        done += yield from give_effect(tx, around, [(position, lane_id) for position, lane_id in due])
    rows = yield "due_queues", (1,)
    if not rows:
        return None
    next_in_ms: int = max(rows[0][1] - tx.now_ms, 0)
    return next_in_ms if next_in_ms or done else HELD_MS
