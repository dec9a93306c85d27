"""Turning jobs away: at once where it happens now and then, after a pause where it is a flood."""

from __future__ import annotations

import asyncio
import random

PAUSE_S = (0.05, 0.15)
"""How long, at least and at most, one of a flood waits for its refusal: told at once, it would come back at once, and
those who are accepted would wait for all that are not. By chance, so that they do not come back together."""

WINDOW_S = 0.1
AT_ONCE = 10
"""How many are refused without a pause in each window."""

PAUSED_MAX = 10_000
"""How many wait for their refusal at most; more are refused at once."""


class TurningAway:
    """Slows those down who are refused, once there are many of them."""

    def __init__(self) -> None:
        self._window_ends_s = 0.0
        self._refused = 0
        self._paused = 0

    async def pause(self) -> None:
        """Wait before a refusal is told, if it is one of many."""
        pause_s = self.pause_s(asyncio.get_running_loop().time())
        if not pause_s:
            return
        self._paused += 1
        try:
            await asyncio.sleep(pause_s)
        finally:
            self._paused -= 1

    def pause_s(self, now_s: float) -> float:
        """Count a refusal, and say how long it is to wait."""
        if now_s >= self._window_ends_s:
            self._window_ends_s = now_s + WINDOW_S
            self._refused = 0
        self._refused += 1
        if self._refused <= AT_ONCE or self._paused >= PAUSED_MAX:
            return 0.0
        return random.uniform(*PAUSE_S)  # noqa: S311 - nobody gains by guessing it
