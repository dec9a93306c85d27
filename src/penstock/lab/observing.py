"""How a process of the lab is seen: its pace, its history and its ledger, if a runner has started it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import Call
from penstock.lab.nursery import CONTROL_VARIABLE
from penstock.lab.pace import DrivenPace, Pace, SystemPace
from penstock.lab.recording import Recorder
from penstock.lab.tables.sqlite import SqliteLedger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

FOLDER_VARIABLE = "LAB_FOLDER"
PROCESS_VARIABLE = "LAB_PROCESS"
NUMBER_VARIABLE = "LAB_NUMBER"
DRIVEN_VARIABLE = "LAB_DRIVEN"
ORIGIN_VARIABLE = "LAB_ORIGIN_MS"
SEED_VARIABLE = "LAB_SEED"
VISIBILITY_VARIABLE = "LAB_VISIBILITY_SECONDS"
PHASE_VARIABLE = "LAB_PHASE"
LEDGER = "ledger.db"
HISTORY = "history.jsonl"


@contextlib.contextmanager
def signals_wake(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have signals wake an event loop: one that begins to wait just as a signal comes would sleep through it."""
    told, tells = socket.socketpair()
    told.setblocking(False)
    tells.setblocking(False)
    loop.add_reader(told, told.recv, 4_096)
    before = signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        loop.remove_reader(told)
        told.close()
        tells.close()


class Observer:
    """What the consumer and the producer report to. Without a runner, only the pace is real, and nothing is kept."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self.process = given.get(PROCESS_VARIABLE, f"process-{os.getpid()}")
        self._origin_ms = int(given.get(ORIGIN_VARIABLE, "0"))
        self.visibility_ms = round(float(given.get(VISIBILITY_VARIABLE, "0")) * 1_000)
        self._phase = given.get(PHASE_VARIABLE) or None
        seed = f"{given.get(SEED_VARIABLE, '')}:{self.process}:{given.get(NUMBER_VARIABLE, '')}"
        observed = CONTROL_VARIABLE in given
        self.random = random.Random(seed if observed else None)  # noqa: S311 - faults are no secret
        self._recorder: Recorder | None = None
        self._ledger: SqliteLedger | None = None
        if not observed:
            self.pace: Pace = SystemPace()
            return
        runner = socket.socket(fileno=int(given[CONTROL_VARIABLE]))
        self.pace = DrivenPace(runner, seed) if given.get(DRIVEN_VARIABLE) == "1" else SystemPace(runner)
        folder = Path(given[FOLDER_VARIABLE])
        self._ledger = SqliteLedger(folder / LEDGER)
        place = folder / f"{self.process}.{given.get(NUMBER_VARIABLE, '0')}.{HISTORY}"
        self._recorder = Recorder(place, self.process, now_ms=self.now_ms)

    def now_ms(self) -> int:
        """Return the time since the run began."""
        return self.pace.now_ms() - self._origin_ms

    def since_origin_ms(self, at_ms: int) -> int:
        """Return an instant of the server as the time since the run began."""
        return at_ms - self._origin_ms

    def record(self, outcome: str, f: str, **fields: object) -> None:
        """Add an event to the history."""
        if self._recorder is not None:
            self._recorder.record(outcome, f, phase=self._phase, **fields)
            self.pace.note(f, outcome)

    def call_made(self, message: str, key: str | None) -> None:
        """Add a call to the ledger: it was made outside, whatever follows."""
        if self._ledger is not None:
            self._ledger.append(Call(message=message, t_ms=self.now_ms(), process=self.process, key=key))

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Have `stop` called at SIGTERM and at Ctrl+C, and the runner know that it was."""

        def heed(_signal: int, _frame: FrameType | None) -> None:
            stop()
            self.pace.heard()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, heed)

    def close(self) -> None:
        """Close the files."""
        if self._recorder is not None:
            self._recorder.close()
        if self._ledger is not None:
            self._ledger.close()
