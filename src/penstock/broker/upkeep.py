"""Background work: bounded steps, done again when they say or when woken, and never given up."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.domain.clock import sleep_until
from penstock.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.domain.clock import Clock

_log = logging.getLogger(__name__)


class Upkeep:
    """One piece of background work. `step` does a bounded part of it and says in how many ms it is to be called again.

    None is *when there is something to do*: the next `wake`, or `idle_ms` later, since another node may have left work.
    """

    def __init__(self, name: str, clock: Clock, step: Callable[[], Awaitable[int | None]], *, idle_ms: int) -> None:
        self.name = name
        self._clock = clock
        self._step = step
        self._idle_ms = idle_ms
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Have the next step done at once."""
        self._woken.set()

    async def run(self) -> None:
        """Do the work until cancelled. A step that fails is reported and done again later."""
        while True:
            self._woken.clear()
            next_in_ms = None
            try:
                next_in_ms = await self._step()
            except StoreUnavailable as error:
                _log.warning("The %s could not work and tries again: %s", self.name, error.reason)
            except Exception:  # noqa: BLE001 - the outermost edge of this work: it must outlive a bug
                _log.exception("The %s failed and tries again", self.name)
            await self._pause(self._idle_ms if next_in_ms is None else next_in_ms)

    async def _pause(self, delay_ms: int) -> None:
        """Wait until woken, or for `delay_ms`; give way to requests in any case."""
        if delay_ms == 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.ensure_future(self._woken.wait())
        slept = asyncio.ensure_future(sleep_until(self._clock, self._clock.now_ms() + delay_ms))
        try:
            await asyncio.wait((woken, slept), return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            slept.cancel()
