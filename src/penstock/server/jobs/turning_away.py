"""Turning jobs away: at once where it happens now and then, in a line where it is a flood."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

WINDOW_S = 0.1
AT_ONCE = 10
"""How many are refused at once in each window, while nobody stands in line."""

TURN_S = 0.004
"""How often some of those in line are told. In between the loop is there for whoever is accepted."""

TOLD_PER_S = 1_000
"""How many of those in line are told, evenly, unless they would stand there for too long."""

HELD_S = (0.05, 1.0)
"""How long, at least and about at most, one of a flood stands in line. Retry-After, in whole seconds, says no less."""

HELD_MAX = 10_000
HELD_BYTES_MAX = 64 * 1_048_576
"""How many stand in line at most, and with how much in their requests; others are refused at once."""


class _Held(NamedTuple):
    """Somebody in line, who has not been told yet."""

    until_s: float
    size_bytes: int
    tell: Callable[[], None]


class Line:
    """Those who wait for their refusal, in the order in which they came. It has no clock: its callers tell the time."""

    def __init__(self) -> None:
        self._held: deque[_Held] = deque()
        self._bytes = 0
        self._window_ends_s = 0.0
        self._refused = 0

    def __len__(self) -> int:
        return len(self._held)

    def join(self, now_s: float, tell: Callable[[], None], size_bytes: int = 0) -> bool:
        """Count a refusal and put it in line; or say no, if it is one of few, or of far too many."""
        if now_s >= self._window_ends_s:
            self._window_ends_s = now_s + WINDOW_S
            self._refused = 0
        self._refused += 1
        if self._refused <= AT_ONCE and not self._held:
            return False
        if len(self._held) >= HELD_MAX or self._bytes + size_bytes > HELD_BYTES_MAX:
            return False
        self._held.append(_Held(now_s + HELD_S[0], size_bytes, tell))
        self._bytes += size_bytes
        return True

    def take(self, now_s: float) -> list[Callable[[], None]]:
        """Take out those whose turn it is now, and whoever has stood there for long, be there many of them or few."""
        per_s = max(TOLD_PER_S, len(self._held) / HELD_S[1])
        long_s = now_s - (HELD_S[1] - HELD_S[0])
        taken: list[Callable[[], None]] = []
        while self._held and self._held[0].until_s <= (now_s if len(taken) < per_s * TURN_S else long_s):
            held = self._held.popleft()
            self._bytes -= held.size_bytes
            taken.append(held.tell)
        return taken


class TurningAway:
    """Tells those who are refused, once there are many of them, one after the other.

    Told at once, they would come back at once, and those who are accepted would wait behind all that are not. So it is
    decided here how much of the loop's time refusals take: whoever waits for an answer does not ask again.
    """

    def __init__(self) -> None:
        self._line = Line()
        self._turning = False

    async def pause(self, size_bytes: int = 0) -> None:
        """Wait until a refusal may be told."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hold(lambda: None if told.done() else told.set_result(None), size_bytes)
        await told

    def hold(self, tell: Callable[[], None], size_bytes: int = 0) -> None:
        """Have a refusal told, now or when its turn comes. `size_bytes` is what is kept for it until then."""
        loop = asyncio.get_running_loop()
        if not self._line.join(loop.time(), tell, size_bytes):
            tell()
        elif not self._turning:
            self._turning = True
            loop.call_later(TURN_S, self._turn)

    def _turn(self) -> None:
        """Tell those whose turn it is."""
        self._turning = bool(self._line)
        if not self._turning:
            return
        loop = asyncio.get_running_loop()
        loop.call_later(TURN_S, self._turn)
        for tell in self._line.take(loop.time()):
            try:
                tell()
            except Exception:  # noqa: BLE001 - the others are to be told all the same
                _log.exception("A refusal could not be told, which is a bug")
