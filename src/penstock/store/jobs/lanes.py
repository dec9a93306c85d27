"""Lanes: who of those in line goes next. What holds a lane's row is alone with the lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.domain.job import Lane
    from penstock.store.jobs.script import Row, Script, Tx

PROMOTED_MAX = 500
"""How many places of one lane are given at once: more are free only after it was widened, and then go later."""


class LaneRecord:
    """A lane within one transaction, whose row is locked."""

    __slots__ = ("changed", "id", "jobs", "key", "occupied", "ordered", "queue_id", "reordered", "width")

    id: int
    queue_id: int
    key: str
    width: int
    ordered: int
    occupied: int
    """How many of its places are taken."""
    jobs: int
    """How many of its jobs are not finished."""

    def __init__(self, row: Row) -> None:
        self.id, self.queue_id, self.key, self.width, self.ordered, self.occupied, self.jobs = row
        self.changed = self.reordered = False

    def join(self) -> bool:
        """Add a new job to the end of the line, and tell whether it has a place at once."""
        self.changed = True
        # In an ordered lane a free place belongs to whoever comes first in line.
        free = self.occupied < self.width and (not self.ordered or self.jobs == self.occupied)
        self.jobs += 1
        self.occupied += free
        return free

    def expect(self) -> None:
        """Add a job that has no place for now: it is not due, or whoever is next in line is still to be found."""
        self.changed = True
        self.jobs += 1

    def reorder(self) -> None:
        """Note that who has a place in an ordered lane may not be first in line: one before it came back."""
        self.reordered = bool(self.ordered)

    def leave(self, *, finished: bool, in_lane: bool) -> None:
        """Let a job go: for good, or until it comes due again."""
        self.changed = True
        self.jobs -= finished
        self.occupied -= in_lane
        assert self.occupied >= 0, self.key
        assert self.jobs >= 0, self.key


def open_lanes(queue_id: int, lanes: Iterable[Lane]) -> Script[dict[tuple[str, bool], LaneRecord]]:
    """Lock lanes by their names, making those that are not there; the width is what was last asked for."""
    wanted = {(lane.key, lane.ordered): lane.width for lane in lanes}
    rows = yield (
        "open_lanes",
        (queue_id, listed((key, width, int(ordered)) for (key, ordered), width in sorted(wanted.items()))),
    )
    records = [LaneRecord(row) for row in rows]
    return {(record.key, bool(record.ordered)): record for record in records}


def lock_lanes_of(job_ids: Sequence[str]) -> Script[dict[int, LaneRecord]]:
    """Lock the lanes that these jobs belong to."""
    rows = yield "lock_lanes_of_jobs", (listed(job_ids),)
    return {row[0]: LaneRecord(row) for row in rows}


def lock_free_lanes(lane_ids: Iterable[int]) -> Script[dict[int, LaneRecord]]:
    """Lock those of these lanes that nobody else holds now."""
    rows = yield "lock_free_lanes", (listed(sorted(lane_ids)),)
    return {row[0]: LaneRecord(row) for row in rows}


def save_lanes(tx: Tx, lanes: Iterable[LaneRecord]) -> Script[None]:
    """Give free places to those who are next in line, and write the lanes; the jobs have been written before."""
    saved: list[Sequence[object]] = []
    for lane in lanes:
        if lane.reordered and lane.occupied < lane.jobs:
            yielded = yield "yield_place", (lane.id,)
            lane.occupied -= len(yielded)
            lane.changed |= bool(yielded)
        if not lane.changed:
            continue
        free = min(lane.width - lane.occupied, lane.jobs - lane.occupied, PROMOTED_MAX)
        if free > 0:
            promoted = yield "promote_in_order" if lane.ordered else "promote_by_urgency", (lane.id, free)
            lane.occupied += len(promoted)
            ready = sum(row[0] for row in promoted)
            if ready:
                tx.wake(lane.queue_id, ready)
        saved.append((lane.id, lane.occupied, lane.jobs))
    if saved:
        yield "save_lane", saved
