"""A machine whose clocks a test sets: time passes on all of them, and a step moves the wall clock alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.domain.clock import SystemClock, Timer
from penstock.store.sqlite.store_time import LOOK_EVERY_MS
from penstock.testing import ManualClock

_NS_PER_MS = 1_000_000

_DECADE_HOURS = 24 * 3_650

after_a_step = pytest.mark.parametrize("hours", [-1, 1], ids=["hour-back", "hour-ahead"])
"""Run a test that asks for `hours`, by which the clock is set, both ways."""

after_any_step = pytest.mark.parametrize(
    "hours",
    [-1, 1, -_DECADE_HOURS, _DECADE_HOURS],
    ids=["hour-back", "hour-ahead", "decade-back", "decade-ahead"],
)
"""As `after_a_step`, and as far as a clock is out that has lost its battery."""


class Machine:
    """The clocks of one machine, and the timers of its event loop."""

    def __init__(self) -> None:
        self._time = ManualClock()
        self._wall_ahead_ms = 0

    def clock(self) -> SystemClock:
        """Make the clock of a process that starts now."""
        return SystemClock(wall_ns=self._wall_ns, elapsed_ns=self._elapsed_ns, call_later=self._call_later)

    def clock_beside_database(self) -> SystemClock:
        """Make the clock of a process whose database is on another machine, where nobody sets the clock."""
        clock = _BesideDatabase(wall_ns=self._wall_ns, elapsed_ns=self._elapsed_ns, call_later=self._call_later)
        clock.database = self._time
        return clock

    async def wait_until_noticed(self) -> None:
        """Let so much time pass that a store notices that the wall clock was set."""
        await self.wait(ms=LOOK_EVERY_MS)

    async def wait(self, *, seconds: float = 0, ms: int = 0) -> None:
        """Let time pass."""
        await self._time.advance(seconds=seconds, ms=ms)

    def step(self, *, hours: float = 0, seconds: float = 0) -> None:
        """Set the wall clock forward, or back."""
        self._wall_ahead_ms += round((hours * 3_600 + seconds) * 1_000)

    @property
    def wall_ms(self) -> int:
        """What the wall clock shows."""
        return self._time.now_ms() + self._wall_ahead_ms

    def _wall_ns(self) -> int:
        return self.wall_ms * _NS_PER_MS

    def _elapsed_ns(self) -> int:
        return (self._time.now_ms() - ManualClock.START_MS) * _NS_PER_MS

    def _call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self._time.call_at(self._time.now_ms() + round(delay_s * 1_000), callback)


class _BesideDatabase(SystemClock):
    """Gives PostgreSQL its instants, as decision record 1 has it."""

    database: ManualClock

    @property
    def pinned_ms(self) -> int | None:
        return self.database.now_ms()
