"""Scan floors: where leases begin to look, so that they need not walk over rows that are dead but not yet gone.

Why a floor is safe is written beside its SQL (migrations, `penstock.floors`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

if TYPE_CHECKING:
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Pool, Session

INTERVAL_S = 0.05
"""How often floors are raised, while there are leases."""

RESCAN_S = 60.0
"""How often they are taken anew from the very beginning, lest an error strand a message for long."""

STEP_MS = 1_000
"""By how much the database's clock goes back to be reported."""

PARTITIONS_MAX = 1_000

_log = logging.getLogger(__name__)


class Floor(NamedTuple):
    """No message of the partition is visible, and no group of it ready, from before `at_ms`.

    Messages of standard queues that were received before have another floor, `returned_at_ms`.
    """

    partition: int | None
    at_ms: int
    returned_at_ms: int = 0


NO_FLOOR = Floor(None, 0)


class Floors:
    """The floors of the queues that are leased from."""

    def __init__(self, pool: Pool, clock: PinnedClock) -> None:
        self._pool = pool
        self._clock = clock
        self._floors: dict[int, Floor] = {}
        self._active: dict[int, tuple[int, bool]] = {}
        self._resets = 0
        self._horizon_ms = 0
        self._leased = asyncio.Event()

    def of(self, queue_id: int) -> Floor:
        """Return the floor of a queue; the one at the bottom if it has none."""
        return self._floors.get(queue_id, NO_FLOOR)

    def seen(self, queue_id: int, partition: int, *, fifo: bool) -> None:
        """Take note that a queue is leased from, and where its messages are."""
        if self._clock.pinned_ms is None and len(self._active) < PARTITIONS_MAX:
            self._active[queue_id] = (partition, fifo)
            self._leased.set()

    def reset(self) -> None:
        """Forget all floors: the database that is connected to next may have another clock."""
        self._resets += 1
        self._horizon_ms = 0
        self._floors.clear()

    async def run(self) -> None:
        """Raise the floors from time to time, for ever."""
        loop = asyncio.get_running_loop()
        rescan_at_s = loop.time() + RESCAN_S
        while True:
            await self._leased.wait()
            self._leased.clear()
            await asyncio.sleep(INTERVAL_S)
            rescan = loop.time() >= rescan_at_s
            if rescan:
                rescan_at_s = loop.time() + RESCAN_S
            try:
                async with self._pool.session() as session:
                    await self.advance(session, rescan=rescan)
            except (OSError, asyncpg.PostgresError):
                # Without floors leases are slower, not wrong; and they find out for themselves what is the matter.
                self.reset()

    async def advance(self, session: Session, *, rescan: bool = False) -> None:
        """Raise the floors of the queues that were leased from since the last time; `rescan` trusts none of them."""
        active, self._active = self._active, {}
        horizon_ms = await session.fetchval("SELECT penstock.floor_horizon()")
        if horizon_ms is None:
            self.reset()
            return
        # It goes back with the clock; and a little, where a transaction is seen later than another that began after it.
        if horizon_ms < self._horizon_ms:
            if horizon_ms < self._horizon_ms - STEP_MS:
                _log.warning("the database's clock was set back", extra={"by_ms": self._horizon_ms - horizon_ms})
            self.reset()
        self._horizon_ms = horizon_ms
        resets = self._resets
        floors = {} if rescan else dict(self._floors)
        known = [
            floors[queue] if queue in floors and floors[queue].partition == partition else Floor(partition, 0)
            for queue, (partition, _) in active.items()
        ]
        raised = await session.fetch(
            "SELECT * FROM penstock.floors($1, $2, $3, $4, $5)",
            horizon_ms,
            [partition for partition, _ in active.values()],
            [fifo for _, fifo in active.values()],
            [floor.at_ms for floor in known],
            [floor.returned_at_ms for floor in known],
        )
        if resets == self._resets:
            if rescan or len(self._floors) >= PARTITIONS_MAX:
                self._floors.clear()
            for (queue, (partition, _)), row in zip(active.items(), raised, strict=True):
                self._floors[queue] = Floor(partition, row["floor"], row["returned_floor"])
