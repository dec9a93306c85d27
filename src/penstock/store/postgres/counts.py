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

IN_FLIGHT_BELIEVED_S = 1.0
IN_FLIGHT_NEAR = 0.75
"""From this share of its limit on, what is in flight is counted at every lease."""

QUEUES_MAX = 10_000

_COUNT = "SELECT * FROM penstock.count_messages($1, $2)"


class MessageCounts:
    """Counts of queues, each believed for a while; never while the time is pinned."""

    def __init__(self, work: Work, clock: PinnedClock) -> None:
        self._work = work
        self._clock = clock
        self._believed: dict[int, tuple[Counts, float]] = {}
        self._counting: dict[int, asyncio.Future[Counts]] = {}

    async def count(self, queue: Queue) -> Counts:
        """Count, or tell what was counted a moment ago. Calls at the same time share one count."""
        if self._clock.pinned_ms is not None:
            return await self._work.read(lambda session: self._query(session, queue))
        believed = self._believed.get(queue.id)
        if believed is not None and asyncio.get_running_loop().time() < believed[1]:
            return believed[0]
        if queue.id not in self._counting:
            counting = asyncio.ensure_future(self._count(queue))
            self._counting[queue.id] = counting
            counting.add_done_callback(lambda _: self._counting.pop(queue.id, None))
        return await asyncio.shield(self._counting[queue.id])

    def forget(self, queue: Queue) -> None:
        """Believe nothing of a queue that was purged or deleted."""
        self._believed.pop(queue.id, None)

    async def close(self) -> None:
        """Return once nothing is being counted."""
        if self._counting:
            await asyncio.wait(self._counting.values())

    async def _count(self, queue: Queue) -> Counts:
        clock = asyncio.get_running_loop().time
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
    less than a second ago, this node's leases since then included: other nodes would have to lease the rest meanwhile.
    """

    def __init__(self, clock: PinnedClock) -> None:
        self._clock = clock
        self._known: dict[int, tuple[int, float]] = {}

    def doubtful(self, queue_id: int, limit: int) -> bool:
        """Tell whether a lease must count first."""
        if limit <= IN_FLIGHT_EXACT_MAX or self._clock.pinned_ms is not None:
            return True
        known = self._known.get(queue_id)
        return known is None or known[0] >= IN_FLIGHT_NEAR * limit or asyncio.get_running_loop().time() > known[1]

    def leased(self, queue_id: int, count: int, *, counted: int | None) -> None:
        """Take note of a lease, and of what it counted."""
        if counted is not None:
            if len(self._known) >= QUEUES_MAX:
                self._known.clear()
            until_s = asyncio.get_running_loop().time() + IN_FLIGHT_BELIEVED_S
            self._known[queue_id] = (counted + count, until_s)
        elif queue_id in self._known:
            known, until_s = self._known[queue_id]
            self._known[queue_id] = (known + count, until_s)
