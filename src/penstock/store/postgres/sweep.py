"""Upkeep: what no verb shows any more is removed, a bounded number of rows at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.store.postgres.sql import statements

if TYPE_CHECKING:
    from penstock.domain.limits import Limits
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session
    from penstock.store.postgres.work import Work

RETIRED_QUIET_S = 60.0
"""How long a retired partition is swept again and again: a transaction that began before may still write to it."""

RETIRED_PER_PASS = 20
QUEUES_PER_PASS = 200
QUEUES_KNOWN_MAX = 10_000

RESCAN_S = 60.0
"""How often tables are swept from their beginning; in between, a pass begins where the last one ended."""

_SQL = statements("sweep")
_WINDOWED = ("append_outcomes", "lease_outcomes", "work_outcomes", "deduplication")


class Sweep:
    """Carries out passes."""

    def __init__(self, work: Work, clock: PinnedClock, limits: Limits) -> None:
        self._work = work
        self._clock = clock
        self._limits = limits
        self._after_queue = 0
        self._nothing_until_s: dict[tuple[int, int], float] = {}
        self._reached: dict[str, int] = {}
        self._rescan_at_s = 0.0

    async def sweep(self) -> bool:
        """Do one pass; say whether there is more to do at once."""
        more = await self._work.read(self._retired)
        more |= await self._work.read(self._expired)
        if self._clock.pinned_ms is not None or asyncio.get_running_loop().time() >= self._rescan_at_s:
            self._reached.clear()
            self._rescan_at_s = asyncio.get_running_loop().time() + RESCAN_S
        for table in _WINDOWED:
            more |= await self._windowed(table)
        more |= await self._work.read(self._names)
        more |= await self._work.read(self._tasks)
        return more

    async def _retired(self, session: Session) -> bool:
        rows_max = left = self._limits.sweep_rows_max
        for row in await session.fetch(_SQL["retired"], RETIRED_QUIET_S, RETIRED_PER_PASS):
            removed = await session.fetchval(_SQL["partition"], row["partition"], row["fifo"], left)
            left -= removed
            if left <= 0:
                return True
            if removed == 0 and row["quiet"]:
                await session.fetch(_SQL["forget_partition"], row["partition"])
        return left < rows_max

    async def _expired(self, session: Session) -> bool:
        rows_max = left = self._limits.sweep_rows_max
        rows = await session.fetch(_SQL["queues"], self._after_queue, QUEUES_PER_PASS)
        for row in rows:
            left -= await self._expired_of(session, row["id"], row["retention_ms"], left)
            if left <= 0:
                return True
            self._after_queue = row["id"]
        if len(rows) < QUEUES_PER_PASS:
            self._after_queue = 0
            return left < rows_max
        return True

    async def _expired_of(self, session: Session, queue_id: int, retention_ms: int, rows_max: int) -> int:
        """Remove what has expired in a queue, unless it is known that nothing has."""
        now_s = asyncio.get_running_loop().time()
        flows = self._clock.pinned_ms is None
        if flows and now_s < self._nothing_until_s.get((queue_id, retention_ms), 0.0):
            return 0
        row = await session.fetchrow(_SQL["expired"], self._clock.pinned_ms, queue_id, rows_max)
        assert row is not None
        if flows:
            if len(self._nothing_until_s) >= QUEUES_KNOWN_MAX:
                self._nothing_until_s.clear()
            # Dead letters may be older than what is there, so it is not believed for long.
            next_in_s = RESCAN_S if row["next_in"] is None else min(row["next_in"] / 1000, RESCAN_S)
            self._nothing_until_s[queue_id, retention_ms] = now_s + next_in_s
        removed: int = row["removed"]
        return removed

    async def _windowed(self, table: str) -> bool:
        """Remove what is past its window. Windows end in the order in which they began, so none comes in behind us."""
        rows_max = self._limits.sweep_rows_max
        row = await self._work.read(
            lambda session: session.fetchrow(_SQL[table], self._clock.pinned_ms, self._reached.get(table, 0), rows_max)
        )
        assert row is not None
        if row["removed"]:
            self._reached[table] = row["last"]
        return bool(row["removed"] >= rows_max)

    async def _names(self, session: Session) -> bool:
        rows_max = self._limits.sweep_rows_max
        removed = await session.fetchval(_SQL["names"], self._clock.pinned_ms, self._limits.name_reuse_ms, rows_max)
        return bool(removed >= rows_max)

    async def _tasks(self, session: Session) -> bool:
        rows_max = self._limits.sweep_rows_max
        removed = await session.fetchval(_SQL["tasks"], self._limits.moves_kept_per_queue_max, rows_max)
        return bool(removed >= rows_max)
