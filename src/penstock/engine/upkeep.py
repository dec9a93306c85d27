"""Background work: bounded steps, done again when they say or when woken, and never given up."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.domain.clock import sleep_until
from penstock.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.domain.clock import Clock, Timer

_log = logging.getLogger(__name__)
_NEVER = 2**63


class Upkeep:
    """One piece of background work. `step` does a bounded part of it and says in how many ms it is to be called again.

    None is *when there is something to do*: the next `wake`, or `idle_ms` later, since another node may have left work.
    With `look_s`, no pause is longer than that, whatever `step` says.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        step: Callable[[], Awaitable[int | None]],
        *,
        idle_ms: int,
        look_s: float | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._step = step
        self._idle_ms = idle_ms
        self._look_s = look_s
        self._woken = asyncio.Event()
        self._next_at_ms = _NEVER
        self._sooner: Timer | None = None

    def wake(self) -> None:
        """Have the next step done at once."""
        self._woken.set()

    def expect(self, in_ms: int) -> None:
        """Have a step done within so many ms, if none was to be by then. Cheap enough for every request."""
        at_ms = self._clock.now_ms() + in_ms
        if at_ms < self._next_at_ms:
            self._next_at_ms = at_ms
            if self._sooner is not None:
                self._sooner.cancel()
            self._sooner = self._clock.call_at(at_ms, self.wake)

    async def run(self) -> None:
        """Do the work until cancelled. A step that fails is reported and done again later."""
        failing = False
        while True:
            self._woken.clear()
            self._forget_expected()
            next_at_ms = None
            # What a step says counts from some instant during it; from its beginning is never too late.
            began_ms = self._clock.now_ms()
            try:
                next_in_ms = await self._step()
                next_at_ms = None if next_in_ms is None else began_ms + next_in_ms
                if failing:
                    _log.info("The %s works again", self.name)
                failing = False
            except StoreUnavailable as error:
                failing = True
                _log.warning("The %s could not work and tries again: %s", self.name, error.reason)
            except Exception:  # noqa: BLE001 - the outermost edge of this work: it must outlive a bug
                _log.exception("The %s failed and tries again", self.name)
            await self._pause(self._clock.now_ms() + self._idle_ms if next_at_ms is None else next_at_ms)

    def _forget_expected(self) -> None:
        self._next_at_ms = _NEVER
        if self._sooner is not None:
            self._sooner.cancel()
            self._sooner = None

    async def _pause(self, until_ms: int) -> None:
        """Wait until woken, or until this instant; give way to requests in any case."""
        if until_ms <= self._clock.now_ms():
            await asyncio.sleep(0)
            return
        self._next_at_ms = min(self._next_at_ms, until_ms)
        woken = asyncio.ensure_future(self._woken.wait())
        slept = asyncio.ensure_future(sleep_until(self._clock, until_ms))
        try:
            # By real time: a clock that is moved by hand over weeks need not stop at every look.
            await asyncio.wait((woken, slept), timeout=self._look_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            slept.cancel()
