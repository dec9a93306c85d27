"""The runner's clock: hears the processes, gives them their turns and moves time, or lets real time pass."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from penstock.domain.clock import SystemClock
from penstock.lab.turns import Advance, Grant, Listen, Return, Settle, Stuck, Turns

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from penstock.lab.control import Line
    from penstock.lab.embedded_server import EmbeddedServer
    from penstock.lab.processes import Process, Processes

STUCK_S_MAX = 30.0
"""How long, in real time, a process may run in its turn, or an answer be on its way."""
SETTLE_S = 0.000_5
LISTEN_S = 0.25


class Stalled(RuntimeError):
    """The run cannot go on: a process hangs, or nobody waits for anything."""


class Driver:
    """Time for one run. With a server on a manual clock it is driven; without, it is the system's."""

    def __init__(
        self,
        processes: Processes,
        server: EmbeddedServer | None,
        *,
        ended: Callable[[Process], None],
        tick: Callable[[], None] = lambda: None,
        stuck_s_max: float = STUCK_S_MAX,
    ) -> None:
        self._processes = processes
        self._server = server
        self._ended = ended
        self._tick = tick
        self.stuck_s_max = stuck_s_max
        self._turns = Turns()
        self._clock = SystemClock()
        self._heard_s = time.monotonic()
        self.notes: Counter[tuple[str, str]] = Counter()
        """How often which event happened, by its `f` and its outcome."""

    @property
    def driven(self) -> bool:
        """Whether this moves time, or only watches it."""
        return self._server is not None

    def now_ms(self) -> int:
        """Return the present instant of the run's clock."""
        return self._clock.wall_ms() if self._server is None else self._server.look().now_ms

    def started(self, process: Process) -> None:
        """Take a process that was just started into account."""
        self._turns.start(_key(process))
        self._heard_s = time.monotonic()

    def signal(self, process: Process, number: signal.Signals) -> None:
        """Send a signal. Time stands still until the process has heard it or has ended."""
        if process.running:
            self._turns.signal(_key(process))
            self._processes.signal(process, number)

    def wait(self, over: Callable[[], bool], *, until_ms: int | None = None) -> bool:
        """Let time pass until `over` says so; False if `until_ms` came first. Raises `Stalled`."""
        self._heard_s = time.monotonic()
        while True:
            self._tick()
            if self._server is None:
                if over():
                    return True
                if until_ms is not None and self.now_ms() >= until_ms:
                    return False
                self._wait_really(until_ms)
            elif (ended := self._drive(self._server, over, until_ms)) is not None:
                return ended

    def _wait_really(self, until_ms: int | None) -> None:
        left_s = LISTEN_S if until_ms is None else (until_ms - self.now_ms()) / 1_000
        self._hear(min(max(left_s, 0), LISTEN_S))

    def _drive(self, server: EmbeddedServer, over: Callable[[], bool], until_ms: int | None) -> bool | None:
        """Do what comes next; whether the wait is over, or None while it goes on."""
        seen = server.look()
        decision = self._turns.decide(
            now_ms=seen.now_ms, polls_parked=seen.polls_parked, server_next_ms=seen.next_ms, until_ms=until_ms
        )
        # Asked only while nobody runs, so that the scenario goes on at the same instant every time.
        if not isinstance(decision, Listen | Settle) and over():
            return True
        match decision:
            case Listen():
                self._hear(LISTEN_S)
                self._refuse_to_hang()
            case Settle():
                self._hear(SETTLE_S)
                self._refuse_to_hang()
            case Grant(name):
                self._turns.grant(name)
                process = next(one for one in self._processes.running if _key(one) == name)
                self._processes.answer(process, [seen.now_ms])
                self._heard_s = time.monotonic()
            case Advance(to_ms):
                server.advance_to(to_ms)
                self._heard_s = time.monotonic()
            case Return():
                return False
            case Stuck():
                self._hear(LISTEN_S)
                if not self._processes.running:
                    raise Stalled("Nothing runs, and the scenario waits for something that will not happen.")
                self._refuse_to_hang()
        return None

    def _hear(self, wait_s: float) -> None:
        for process, line in self._processes.hear(wait_s):
            self._heard_s = time.monotonic()
            if line is None:
                self._turns.end(_key(process))
                self._ended(process)
            else:
                self._note(process, line)

    def _note(self, process: Process, line: Line) -> None:
        match line:
            case ["note", str(f), str(outcome)]:
                self.notes[f, outcome] += 1
            case _:
                if self._server is not None:
                    self._turns.hear(_key(process), line)

    def _refuse_to_hang(self) -> None:
        if time.monotonic() - self._heard_s > self.stuck_s_max:
            raise Stalled(
                f"Nothing has moved for {self.stuck_s_max:g} seconds: {', '.join(self._turns.describe()) or 'nobody'}."
            )


def _key(process: Process) -> str:
    """Return a name that no other process of the run has: that of a consumer started again is used twice."""
    return f"{process.name}.{process.number}"
