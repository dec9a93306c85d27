"""Offers that never reached a worker: given back in the background, whatever became of the request that made them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from penstock.domain.clock import from_wall_ms, sleep_until
from penstock.domain.errors import StoreUnavailable
from penstock.domain.job_errors import JobError
from penstock.store.job_port import Release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.job import Lease, Offer
    from penstock.domain.job_limits import JobLimits
    from penstock.store.job_port import JobStore

SETTLE_S = 5.0
"""How long a server that stops waits for a store that fails."""

PAUSE_MS = 100
"""How long after a failure of the store it is tried again."""

_log = logging.getLogger(__name__)


class Returns:
    """Gives offers back: all of them, and again if the store fails, until they have lapsed by themselves."""

    def __init__(self, store: JobStore, clock: Clock, limits: JobLimits) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._under_way: set[asyncio.Task[None]] = set()

    def give_back(self, offers: Sequence[Offer]) -> None:
        """Begin to give back offers that were not accepted. Those that were meanwhile stay with who accepted them."""
        if not offers:
            return
        # Once lapsed, the store takes them back by itself. What they are about is not kept meanwhile.
        lapsed_ms = from_wall_ms(self._clock, max(offer.accept_by_ms for offer in offers))
        leases = [offer.lease for offer in offers]
        task = asyncio.get_running_loop().create_task(self._give_back(leases, lapsed_ms))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def settle(self, seconds_max: float = SETTLE_S) -> None:
        """Wait until all that was begun is done. What takes longer is left to lapse."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self._under_way:
                    await asyncio.wait(self._under_way)
        if self._under_way:
            _log.warning("The store did not take back all offers in time; they lapse by themselves")
            for task in self._under_way:
                task.cancel()
            await asyncio.wait(self._under_way)

    async def _give_back(self, leases: list[Lease], lapsed_ms: int) -> None:
        size = self._limits.batch_reports_max
        while leases:
            try:
                releases = [Release(lease, unaccepted=True) for lease in leases[:size]]
                answers = await self._store.report(releases)
            except StoreUnavailable as error:
                if self._clock.now_ms() >= lapsed_ms:
                    _log.warning("%d offers could not be given back and have lapsed: %s", len(leases), error.reason)
                    return
                await sleep_until(self._clock, self._clock.now_ms() + PAUSE_MS)
            except Exception:  # noqa: BLE001 - the outermost edge of this work
                _log.exception("%d offers could not be given back", len(leases))
                return
            else:
                kept = sum(isinstance(answer, JobError) for answer in answers)
                _log.debug("%d offers were given back, %d were gone or accepted", len(answers) - kept, kept)
                leases = leases[size:]
