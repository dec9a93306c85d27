"""A bell: rung by whoever changed something, heard by the one who waits for that or for an instant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.domain.clock import Clock


class Bell:
    """For one who waits. A ring while nobody waits is kept, so that the next wait ends at once."""

    __slots__ = ("_rung", "_waiting")

    def __init__(self) -> None:
        self._rung = False
        self._waiting: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """End the wait, or the next one."""
        self._rung = True
        self._end()

    async def wait(self, clock: Clock, until_ms: int) -> bool:
        """Wait for a ring, at most until this instant; tell whether it rang."""
        if not self._rung:
            self._waiting = asyncio.get_running_loop().create_future()
            timer = clock.call_at(until_ms, self._end)
            try:
                await self._waiting
            finally:
                timer.cancel()
                self._waiting = None
        rung, self._rung = self._rung, False
        return rung

    def _end(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
