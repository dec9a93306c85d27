"""How the leases of a message are laid out in its lane: which rows they take, and what their holders did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.lab.checkers.evidence import Lease, by_message, leases
from penstock.lab.history import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.report.scene import Scene


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A lease with what its holder did, and the row it is drawn in."""

    lease: Lease
    row: int
    stopped: Event | None
    """The crash or exit that ended the work."""
    work: tuple[Event, ...]
    """Effects and reports of the holder, in time or late."""
    deletes: tuple[Event, ...]

    @property
    def late_ms(self) -> int:
        """When the last work after the end of the lease was done, or the end of the lease."""
        return max([self.lease.until_ms, *(event.t_ms for event in self.work)])


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """All that is drawn of one message."""

    message: str
    events: tuple[Event, ...]
    held: tuple[Held, ...]

    @property
    def rows(self) -> int:
        return max((one.row for one in self.held), default=0) + 1

    @property
    def calls(self) -> list[Event]:
        return [event for event in self.events if event.f == "effect" and event.type == "ok"]

    @property
    def deleted(self) -> bool:
        return any(event.f == "delete" and event.type == "ok" for event in self.events)


def lanes_of(scene: Scene) -> list[Lane]:
    """Lay out the lane of each message, in the order they were sent."""
    stops = [event for event in scene.evidence.events if event.f in {"crash", "exit"}]
    granted: dict[str, list[Lease]] = {}
    for lease in leases(scene.evidence, visibility_ms=scene.visibility_ms):
        granted.setdefault(lease.message, []).append(lease)
    lanes = []
    for message, events in by_message(scene.evidence.events).items():
        busy: list[int] = []
        held = []
        for lease in granted.get(message, []):
            one = _held(lease, events, stops, row=0)
            start = lease.got.t_ms
            row = next((place for place, until in enumerate(busy) if until <= start), len(busy))
            busy[row : row + 1] = [
                max(one.late_ms if one.work else 0, lease.end_ms if one.stopped is None else lease.until_ms)
            ]
            held.append(msgspec.structs.replace(one, row=row))
        lanes.append(Lane(message=message, events=tuple(events), held=tuple(held)))
    return lanes


def _held(lease: Lease, events: Sequence[Event], stops: Sequence[Event], *, row: int) -> Held:
    later = [event for event in events if event.i > lease.got.i and event.process == lease.process]
    for place, event in enumerate(later):
        if event.f == "receive":
            later = later[:place]
            break
    end = lease.over.i if lease.over is not None else None
    stopped = next(
        (
            event
            for event in stops
            if event.process == lease.process
            and event.i > lease.got.i
            and event.t_ms <= lease.until_ms
            and (end is None or event.i < end or (event.f == "crash" and event.message == lease.message))
            and event.message in {None, lease.message}
        ),
        None,
    )
    return Held(
        lease=lease,
        row=row,
        stopped=stopped,
        work=tuple(event for event in later if event.f in {"effect", "report"}),
        deletes=tuple(event for event in later if event.f == "delete" and event.type in {"ok", "fail"}),
    )


def short(process: str) -> str:
    """Shorten a process's name to what fits into a lease: `consumer-2` becomes `c2`."""
    digits = re.search(r"\d+$", process)
    return process if len(process) <= 3 else process[0] + (digits[0] if digits else "")
