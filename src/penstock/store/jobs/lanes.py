"""Lanes: who of those in line goes next. What holds a lane's row is alone with the lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.store.jobs.script import listed
from penstock.store.jobs.settings import decode_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.domain.job import Lane
    from penstock.store.jobs.script import Row, Script, Tx

PROMOTED_MAX = 500
"""How many places of one lane are given at once: more are free only after it was widened, and then go later."""


WIDENED_MAX = 1_000
"""In how many lanes a new width lets jobs go at once; in others they go with the next step of a job there."""


class LaneName(NamedTuple):
    """By what a lane is found within its queue. A `shared` one has no tenant. Flags are numbers, as in the tables."""

    shared: int
    tenant: str
    key: str
    ordered: int


def name_of(lane: Lane, tenant: str) -> LaneName:
    """The name of the lane that a job of a tenant stands in."""
    return LaneName(int(lane.shared), "" if lane.shared else tenant, lane.key, int(lane.ordered))


class LaneRecord:
    """A lane within one transaction, whose row is locked."""

    __slots__ = ("changed", "id", "jobs", "name", "occupied", "ordered", "queue_id", "reordered", "width")

    id: int
    queue_id: int
    width: int
    """What its queue says about the key, or else what the first of its unfinished jobs asked for."""
    occupied: int
    """How many of its places are taken."""
    jobs: int
    """How many of its jobs are not finished."""

    def __init__(self, row: Row) -> None:
        self.id, self.queue_id, *name, self.width, self.occupied, self.jobs, settings = row
        self.name = LaneName(*name)
        self.ordered = bool(self.name.ordered)
        setting = None if self.ordered else decode_settings(settings).lanes.get(self.name.key)
        if setting is not None:
            self.width = setting.width
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
        self.reordered = self.ordered

    def leave(self, *, finished: bool, in_lane: bool) -> None:
        """Let a job go: for good, or until it comes due again."""
        self.changed = True
        self.jobs -= finished
        self.occupied -= in_lane
        assert self.occupied >= 0, self.name
        assert self.jobs >= 0, self.name


def open_lanes(queue_id: int, lanes: Iterable[tuple[LaneName, int]]) -> Script[dict[LaneName, LaneRecord]]:
    """Lock lanes by their names, making those that are not there with the width that is first asked for."""
    wanted: dict[LaneName, int] = {}
    for name, width in lanes:
        wanted.setdefault(name, width)
    rows = yield "open_lanes", (queue_id, listed((*name, width) for name, width in sorted(wanted.items())))
    records = [LaneRecord(row) for row in rows]
    return {record.name: record for record in records}


def lock_lanes_of(job_ids: Sequence[str]) -> Script[dict[int, LaneRecord]]:
    """Lock the lanes that these jobs belong to."""
    rows = yield "lock_lanes_of_jobs", (listed(job_ids),)
    return {row[0]: LaneRecord(row) for row in rows}


def lock_free_lanes(lane_ids: Iterable[int]) -> Script[dict[int, LaneRecord]]:
    """Lock those of these lanes that nobody else holds now."""
    rows = yield "lock_free_lanes", (listed(sorted(lane_ids)),)
    return {row[0]: LaneRecord(row) for row in rows}


def lock_lanes_by_key(queue_id: int, keys: Iterable[str]) -> Script[list[LaneRecord]]:
    """Lock lanes of these concurrency keys, of all tenants, in which somebody waits; at most `WIDENED_MAX`."""
    rows = yield "lock_lanes_by_key", (queue_id, listed(keys), WIDENED_MAX)
    return [LaneRecord(row) for row in rows]


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
            tx.gates.update((lane.queue_id, gate) for ready, gate in promoted if ready and gate is not None)
            number = sum(ready > 0 for ready, _ in promoted)
            if number:
                tx.wake(lane.queue_id, number)
        saved.append((lane.id, lane.occupied, lane.jobs))
    if saved:
        yield "save_lane", saved
