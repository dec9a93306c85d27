"""How a process of the lab takes its time: on the system's clock, or on one that the runner drives."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.domain.clock import SystemClock, Timer
from penstock.lab.control import Line, decode, encode

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

T = TypeVar("T")

CALL_MS = (5, 25)
"""How long a call takes on a driven clock: a number of milliseconds in this range, by the seed."""
SLICE_S = 0.05
"""How soon a sleep on the system's clock ends once it is not wanted any more."""


class Pace(Protocol):
    """Where a process gets its time from, and through which it waits. Instants are milliseconds."""

    def now_ms(self) -> int:
        """Return the present instant."""

    def sleep(self, seconds: float, *, wanted: Callable[[], bool] | None = None) -> None:
        """Return after so many seconds; sooner, on the system's clock, once `wanted` says False."""

    def step(self) -> None:
        """Take the time of one call. On a driven clock others may act meanwhile."""

    def poll(self, seconds: float, call: Callable[[], T]) -> T:
        """Make a call that waits on the server for at most so many seconds."""

    def note(self, f: str, outcome: str) -> None:
        """Let the runner count an event for its live line."""

    def heard(self) -> None:
        """Let the runner know that a signal has come, if that did not end the process."""


class SystemPace:
    """The system's clock. Where there is a runner, it hears what happens, and does not steer."""

    def __init__(self, runner: socket.socket | None = None) -> None:
        self._clock = SystemClock()
        self._runner = runner

    def now_ms(self) -> int:
        """Return the present instant of the wall clock: that of the server's timestamps too."""
        return self._clock.wall_ms()

    def sleep(self, seconds: float, *, wanted: Callable[[], bool] | None = None) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and (wanted is None or wanted()):
            time.sleep(left_s if wanted is None else min(left_s, SLICE_S))

    def step(self) -> None:
        """A call takes as long as it takes."""

    def poll(self, seconds: float, call: Callable[[], T]) -> T:  # noqa: ARG002 - the server counts them
        return call()

    def note(self, f: str, outcome: str) -> None:
        if self._runner is not None:
            self._runner.sendall(encode(["note", f, outcome]))

    def heard(self) -> None:
        """Nobody waits for that."""


class PaceClock:
    """A pace in the form of a clock. Its timers take real time, during which a process keeps its turn."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    @property
    def pinned_ms(self) -> int | None:
        """Nothing: time passes, however fast."""
        return None

    def now_ms(self) -> int:
        return self._pace.now_ms()

    def wall_ms(self) -> int:
        return self._pace.now_ms()

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(max(at_ms - self.now_ms(), 0) / 1_000, callback)


class RunnerGone(SystemExit):
    """The runner has ended, and so does this process."""


class DrivenPace:
    """A clock that stands still while this process does anything, and that the runner moves when all processes wait.

    The process runs only in its turn, which begins when a wait is over and ends with the next wait.
    """

    def __init__(self, runner: socket.socket, seed: str) -> None:
        self._runner = runner
        self._received = b""
        self._random = random.Random(seed)  # noqa: S311 - latencies are no secret
        self._now_ms = 0
        self._ask(["hello"])

    def now_ms(self) -> int:
        return self._now_ms

    def sleep(self, seconds: float, *, wanted: Callable[[], bool] | None = None) -> None:  # noqa: ARG002 - as said
        self._ask(["sleep", self._now_ms + round(seconds * 1_000)])

    def step(self) -> None:
        self._ask(["sleep", self._now_ms + self._random.randint(*CALL_MS)])

    def poll(self, seconds: float, call: Callable[[], T]) -> T:
        self._tell(["poll", self._now_ms + round(seconds * 1_000)])
        try:
            return call()
        finally:
            self._ask(["turn"])

    def note(self, f: str, outcome: str) -> None:
        self._tell(["note", f, outcome])

    def heard(self) -> None:
        # A signal comes while this process waits, so this is in no line's way.
        self._tell(["heard"])

    def _tell(self, line: Line) -> None:
        try:
            self._runner.sendall(encode(line))
        except OSError:
            raise RunnerGone(1) from None

    def _ask(self, line: Line) -> None:
        """Give up the turn, and return when it is this process's again, with the instant at which that is."""
        self._tell(line)
        while b"\n" not in self._received:
            try:
                read = self._runner.recv(4_096)
            except OSError:
                raise RunnerGone(1) from None
            if not read:
                raise RunnerGone(1)
            self._received += read
        answer, _, self._received = self._received.partition(b"\n")
        self._now_ms = int(str(decode(answer)[0]))
