"""Time: the one place it comes from, as the system tells it or as a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A callback that has not come due."""

    def cancel(self) -> None:
        """Forget the callback. Harmless when it has already run."""


class Clock(Protocol):
    """Where all times come from. Instants are milliseconds since the epoch."""

    @property
    def pinned_ms(self) -> int | None:
        """The present instant where it is moved by hand, or None where time flows by itself.

        A store with a clock of its own (PostgreSQL) uses that one unless the time is pinned.
        """

    def now_ms(self) -> int:
        """Tell the present instant."""

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back on the running event loop once `at_ms` has come; soon, if it already has."""


class SystemClock:
    """Time as the operating system tells it."""

    @property
    def pinned_ms(self) -> int | None:
        """Nothing: time flows."""
        return None

    def now_ms(self) -> int:
        """Tell the present instant."""
        return time.time_ns() // 1_000_000

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back on the running event loop once `at_ms` has come."""
        delay_s = max(0.0, (at_ms - self.now_ms()) / 1000)
        return asyncio.get_running_loop().call_later(delay_s, callback)


class _ManualTimer:
    """A callback waiting in a manual clock."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ManualClock:
    """Time that stands still until it is moved, for tests that cross minutes or weeks at once."""

    START_MS = 1_700_000_000_000
    """An arbitrary instant, so that runs repeat exactly."""

    _TURNS = 10
    """Turns of the event loop given, after each timer, to whatever it woke."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._now_ms = start_ms
        self._order = itertools.count()
        self._timers: list[tuple[int, int, _ManualTimer]] = []

    @property
    def pinned_ms(self) -> int | None:
        """The present instant: it is always set by hand."""
        return self._now_ms

    def now_ms(self) -> int:
        """Tell the present instant."""
        return self._now_ms

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back when `advance` reaches `at_ms`; on the loop's next turn if it is not in the future."""
        timer = _ManualTimer(callback)
        if at_ms <= self._now_ms:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (at_ms, next(self._order), timer))
        return timer

    async def advance(self, *, seconds: float = 0, ms: int = 0) -> None:
        """Move time forward, stopping at each timer on the way and letting what it woke run."""
        target_ms = self._now_ms + round(seconds * 1000) + ms
        if target_ms < self._now_ms:
            message = "time cannot be moved backwards"
            raise ValueError(message)
        await self._settle()
        while self._timers and self._timers[0][0] <= target_ms:
            at_ms, _, timer = heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, at_ms)
            timer.fire()
            await self._settle()
        self._now_ms = target_ms
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(self._TURNS):
            await asyncio.sleep(0)


async def sleep_until(clock: Clock, at_ms: int) -> None:
    """Return once the clock has reached `at_ms`."""
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reach() -> None:
        if not reached.done():
            reached.set_result(None)

    timer = clock.call_at(at_ms, reach)
    try:
        await reached
    finally:
        timer.cancel()
