"""How many messages there are: counted seldom, since counting walks over them, and believed for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.domain.queue import Counts
from penstock.store.postgres.queues import no_queue

if TYPE_CHECKING:
    from penstock.domain.queue import Queue
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session
    from penstock.store.postgres.work import Work

BELIEVED_FACTOR = 20
"""A count is believed for so many times as long as it took: counting takes a twentieth of the time at most."""

IN_FLIGHT_EXACT_MAX = 1_000
"""Limits up to this one are kept exactly."""

IN_FLIGHT_BELIEVED_S_MIN = 2.0
IN_FLIGHT_BELIEVED_S_MAX = 10.0
IN_FLIGHT_NEAR = 0.5
"""From this share of its limit on, what is in flight is counted at every lease."""

COUNTS_AT_ONCE_MAX = 2
"""How many queues are counted at the same time: counts may take long, and the connections are few."""

QUEUES_MAX = 10_000

_COUNT = "SELECT * FROM penstock.count_messages($1, $2)"


class MessageCounts:
    """Counts of queues, each believed for a while; never while the time is pinned."""

    def __init__(self, work: Work, clock: PinnedClock) -> None:
        self._work = work
        self._clock = clock
        self._believed: dict[int, tuple[Counts, float]] = {}
        self._counting: dict[int, asyncio.Future[Counts]] = {}
        self._places = asyncio.Semaphore(COUNTS_AT_ONCE_MAX)

    async def count(self, queue: Queue) -> Counts:
        """Count, or tell what was counted a moment ago. Calls at the same time share one count."""
        if self._clock.pinned_ms is not None:
            async with self._places:
                return await self._work.read(lambda session: self._query(session, queue))
        believed = self._believed.get(queue.id)
        if believed is not None and asyncio.get_running_loop().time() < believed[1]:
            return believed[0]
        if queue.id not in self._counting:
            counting = asyncio.ensure_future(self._count(queue))
            self._counting[queue.id] = counting
            counting.add_done_callback(lambda done: self._counted(queue.id, done))
        return await asyncio.shield(self._counting[queue.id])

    def _counted(self, queue_id: int, done: asyncio.Future[Counts]) -> None:
        self._counting.pop(queue_id, None)
        if not done.cancelled():
            # It is raised to whoever waits; if they have all gone, it concerns nobody.
            done.exception()

    def forget(self, queue: Queue) -> None:
        """Believe nothing of a queue that was purged or deleted."""
        self._believed.pop(queue.id, None)

    async def close(self) -> None:
        """Return once nothing is being counted."""
        if self._counting:
            await asyncio.wait(self._counting.values())

    async def _count(self, queue: Queue) -> Counts:
        clock = asyncio.get_running_loop().time
        async with self._places:
            started_s = clock()
            counts = await self._work.read(lambda session: self._query(session, queue))
        if len(self._believed) >= QUEUES_MAX:
            self._believed.clear()
        self._believed[queue.id] = (counts, clock() + BELIEVED_FACTOR * (clock() - started_s))
        return counts

    async def _query(self, session: Session, queue: Queue) -> Counts:
        row = await session.fetchrow(_COUNT, self._clock.pinned_ms, queue.id)
        if row is None:
            raise no_queue()
        return Counts(visible=row["visible"], in_flight=row["in_flight"], delayed=row["delayed"])


class InFlight:
    """Which leases must count what is in flight, and which are surely within the limit.

    Those that need not count are those of queues with a large limit, of which less than `IN_FLIGHT_NEAR` was in flight
    a moment ago, this node's leases since then included: other nodes would have to lease the rest meanwhile.
    """

    def __init__(self, clock: PinnedClock) -> None:
        self._clock = clock
        self._known: dict[int, tuple[int, float]] = {}

    def doubtful(self, queue_id: int, limit: int) -> bool:
        """Tell whether a lease must count first."""
        if limit <= IN_FLIGHT_EXACT_MAX or self._clock.pinned_ms is not None:
            return True
        known, until_s = self._known.get(queue_id, (0, 0.0))
        if known >= IN_FLIGHT_NEAR * limit:
            return True
        now_s = asyncio.get_running_loop().time()
        if now_s <= until_s:
            return False
        # The lease that is told so counts for all that come before it is done.
        self._known[queue_id] = (known, now_s + IN_FLIGHT_BELIEVED_S_MIN)
        return True

    def leased(self, queue_id: int, count: int, *, counted: int | None, took_s: float) -> None:
        """Take note of a lease, what it counted, and how long it took."""
        if counted is not None:
            if len(self._known) >= QUEUES_MAX:
                self._known.clear()
            believed_s = max(IN_FLIGHT_BELIEVED_S_MIN, min(BELIEVED_FACTOR * took_s, IN_FLIGHT_BELIEVED_S_MAX))
            self._known[queue_id] = (counted + count, asyncio.get_running_loop().time() + believed_s)
        elif queue_id in self._known:
            known, until_s = self._known[queue_id]
            self._known[queue_id] = (known + count, until_s)
