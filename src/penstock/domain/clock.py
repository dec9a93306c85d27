"""Time: the one place it comes from, as the system measures it or as a test moves it."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_NS_PER_MS = 1_000_000


class Timer(Protocol):
    """A callback that has not come due."""

    def cancel(self) -> None:
        """Forget the callback. Harmless when it has already run."""


class Clock(Protocol):
    """Where all times come from. Instants are milliseconds since the epoch.

    `now_ms` measures how long something lasts, and `wall_ms` says what time it is. They differ once somebody sets the
    system's clock: a lease of 30 seconds still ends after 30 seconds, while a message shows the corrected time.
    """

    @property
    def pinned_ms(self) -> int | None:
        """The present instant where it is moved by hand, or None where time flows by itself.

        A store with a clock of its own (PostgreSQL) uses that one unless the time is pinned.
        """

    def now_ms(self) -> int:
        """Return the present instant. It grows with the time that passes, whatever becomes of the system's clock."""

    def wall_ms(self) -> int:
        """Return the present instant as the system's clock shows it. It may step, forward or back."""

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back on the running event loop once `now_ms` has reached `at_ms`; soon, if it already has."""


def _call_later(delay_s: float, callback: Callable[[], object]) -> Timer:
    return asyncio.get_running_loop().call_later(delay_s, callback)


# Of the clocks that never step, the one that goes on while the machine sleeps, where there is one.
_elapsed_ns = functools.partial(time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SystemClock:
    """Time as the operating system measures it: the wall clock's when this clock was made, and what has passed since.

    So `now_ms` neither jumps nor goes back when the system's clock is set (decision record 10). A test may give other
    clocks than the system's own.
    """

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        elapsed_ns: Callable[[], int] = _elapsed_ns,
        call_later: Callable[[float, Callable[[], object]], Timer] = _call_later,
    ) -> None:
        self._wall_ns = wall_ns
        self._elapsed_ns = elapsed_ns
        self._call_later = call_later
        self._origin_ns = wall_ns() - elapsed_ns()

    @property
    def pinned_ms(self) -> int | None:
        """Nothing: time flows."""
        return None

    def now_ms(self) -> int:
        """Return the present instant."""
        return (self._origin_ns + self._elapsed_ns()) // _NS_PER_MS

    def wall_ms(self) -> int:
        """Return what the system's clock shows."""
        return self._wall_ns() // _NS_PER_MS

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back on the running event loop once `at_ms` has come, never sooner."""
        return _SystemTimer(self, self._call_later, at_ms, callback)


class _SystemTimer:
    """A callback waiting in the system's clock.

    The event loop's clock stands still while the machine sleeps. So a long wait is made of several, and after a sleep
    it ends late by one of them at most.
    """

    __slots__ = ("_at_ms", "_call_later", "_callback", "_clock", "_timer")

    _WAIT_MS_MAX = 10_000

    def __init__(
        self,
        clock: SystemClock,
        call_later: Callable[[float, Callable[[], object]], Timer],
        at_ms: int,
        callback: Callable[[], object],
    ) -> None:
        self._clock = clock
        self._call_later = call_later
        self._at_ms = at_ms
        self._callback = callback
        self._timer = self._wait(at_ms - clock.now_ms())

    def cancel(self) -> None:
        self._timer.cancel()

    def _wait(self, left_ms: int) -> Timer:
        return self._call_later(min(max(left_ms, 0), self._WAIT_MS_MAX) / 1000, self._ring)

    def _ring(self) -> None:
        left_ms = self._at_ms - self._clock.now_ms()
        if left_ms > 0:
            self._timer = self._wait(left_ms)
        else:
            self._callback()


class _ManualTimer:
    """A callback waiting in a manual clock."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, or has run."""
        return self._callback is None

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
        """Return the present instant."""
        return self._now_ms

    def wall_ms(self) -> int:
        """Return the present instant: nobody sets this clock but by moving time."""
        return self._now_ms

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back when `advance` reaches `at_ms`; on the loop's next turn if it is not in the future."""
        timer = _ManualTimer(callback)
        if at_ms <= self._now_ms:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (at_ms, next(self._order), timer))
        return timer

    @property
    def next_timer_ms(self) -> int | None:
        """The instant of the earliest timer that is set, if one is: how far time can move before anything happens."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

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


def from_wall_ms(clock: Clock, wall_ms: int) -> int:
    """Return the instant of a clock at which the system's clock will show `wall_ms`, or did, if it goes on as now."""
    return wall_ms - clock.wall_ms() + clock.now_ms()


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
