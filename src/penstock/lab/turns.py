"""Whose turn it is, and when time may move: the rules of the driven clock, without I/O.

At most one process runs at a time. Time moves only when none runs, none wants to, and the server holds as many
polls as there are processes in one: otherwise an answer is on its way to somebody, who could still act at the present
instant. Then time moves to the earliest instant at which anything happens, and no further.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.lab.control import ControlBroken

if TYPE_CHECKING:
    from penstock.lab.control import Line


class State(enum.Enum):
    """What a process does, as far as time is concerned."""

    STARTING = "has not started"
    RUNNING = "is running"
    SLEEPING = "sleeps"
    POLLING = "waits in a poll"
    ASKING = "waits for its turn"


@dataclass(frozen=True)
class Listen:
    """Read what processes say: somebody runs, or starts."""


@dataclass(frozen=True)
class Settle:
    """Look at the server again: an answer, or a poll, is on its way."""


@dataclass(frozen=True)
class Grant:
    """Let this process go on."""

    name: str


@dataclass(frozen=True)
class Advance:
    """Move the clock to this instant."""

    to_ms: int


@dataclass(frozen=True)
class Return:
    """The scenario goes on: its instant has come."""


@dataclass(frozen=True)
class Stuck:
    """Nothing will ever happen."""


Decision = Listen | Settle | Grant | Advance | Return | Stuck


@dataclass
class _Place:
    order: int
    state: State = State.STARTING
    until_ms: int = 0
    signalled: bool = False
    """Whether a signal is on its way to it, at which it may end."""


class Turns:
    """The processes of one run and how each of them waits."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._started = 0

    def start(self, name: str) -> None:
        """Note that a process was started."""
        assert name not in self._places, f"{name} runs already"
        self._started += 1
        self._places[name] = _Place(self._started)

    def end(self, name: str) -> None:
        """Note that a process is gone, however that came about."""
        self._places.pop(name, None)

    def hear(self, name: str, line: Line) -> None:
        """Note what a process says about its waiting; raises `ControlBroken` for what it cannot say now."""
        place = self._places.get(name)
        if place is None:
            return  # It said that before it ended.
        match line, place.state:
            case ["heard"], _:
                place.signalled = False
            case ["hello"], State.STARTING:
                place.state, place.until_ms = State.ASKING, 0
            case ["sleep", int(until_ms)], State.RUNNING:
                place.state, place.until_ms = State.SLEEPING, until_ms
            case ["poll", int(until_ms)], State.RUNNING:
                place.state, place.until_ms = State.POLLING, until_ms
            case ["turn"], State.POLLING:
                place.state, place.until_ms = State.ASKING, 0
            case _:
                raise ControlBroken(f"{name} says {line!r}, although it {place.state.value}")

    def signal(self, name: str) -> None:
        """Note that a signal was sent to a process. Until it has heard it, or has ended, nothing else happens."""
        if name in self._places:
            self._places[name].signalled = True

    def grant(self, name: str) -> None:
        """Note that a process runs."""
        self._places[name].state = State.RUNNING

    @property
    def polling(self) -> int:
        """How many processes wait in a poll."""
        return sum(place.state is State.POLLING for place in self._places.values())

    def describe(self) -> list[str]:
        """Say of each process how it waits."""
        return [
            f"{name} {'has not answered a signal' if place.signalled else place.state.value}"
            for name, place in self._places.items()
        ]

    def decide(
        self, *, now_ms: int, polls_parked: int, server_next_ms: int | None = None, until_ms: int | None = None
    ) -> Decision:
        """Return what comes next.

        `polls_parked` is what the server counts, `server_next_ms` its next timer, and `until_ms` the instant for
        which the scenario waits.
        """
        states = [place.state for place in self._places.values()]
        signalled = any(place.signalled for place in self._places.values())
        if State.RUNNING in states or State.STARTING in states or signalled:
            return Listen()
        if polls_parked != self.polling:
            return Settle()
        due = [
            (place.until_ms, place.order, name)
            for name, place in self._places.items()
            if place.state is State.ASKING or (place.state is State.SLEEPING and place.until_ms <= now_ms)
        ]
        if due:
            return Grant(min(due)[2])
        if until_ms is not None and until_ms <= now_ms:
            return Return()
        ends = [place.until_ms for place in self._places.values()]
        ends += [instant for instant in (until_ms,) if instant is not None]
        if not ends:
            return Stuck()
        # The server's own timers come first: a lease that ends makes a message ready for a poll that still has time.
        ends += [instant for instant in (server_next_ms,) if instant is not None]
        return Advance(max(min(ends), now_ms))
