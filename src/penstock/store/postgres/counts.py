"""How many messages there are: counting walks over them, so counts of large queues are believed for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.domain.message import Draft, Sent
from penstock.domain.queue import Counts
from penstock.store.postgres.queues import no_queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.message import Refused, SendResult
    from penstock.domain.queue import Queue
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session
    from penstock.store.postgres.work import Work

COUNTED_ANEW_MAX = 10_000
COUNTED_ANEW_S_MAX = 0.1
"""Up to this number of messages, and this time for counting them, a queue is counted anew for everybody who asks."""

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


class _Count:
    """One count of a queue: what was counted, until when that is believed, and what this node has sent since it began.

    What was sent while it was under way may be counted twice, as long as the count is believed; never not at all.
    """

    __slots__ = ("believed_until_s", "counted", "delayed", "visible")

    def __init__(self) -> None:
        self.counted = Counts(visible=0, in_flight=0, delayed=0)
        self.believed_until_s = 0.0
        self.visible = 0
        self.delayed = 0

    @property
    def counts(self) -> Counts:
        counted = self.counted
        return Counts(
            visible=counted.visible + self.visible,
            in_flight=counted.in_flight,
            delayed=counted.delayed + self.delayed,
        )


class MessageCounts:
    """Counts of queues. Those of large queues are believed for a while; never while the time is pinned."""

    def __init__(self, work: Work, clock: PinnedClock) -> None:
        self._work = work
        self._clock = clock
        self._latest: dict[int, _Count] = {}
        """By queue id: a count that is under way or believed."""
        self._waiting: dict[int, asyncio.Future[Counts]] = {}
        """By queue id: a count that is yet to begin, and so sees all that was answered by now."""
        self._counting: set[asyncio.Future[Counts]] = set()
        self._places = asyncio.Semaphore(COUNTS_AT_ONCE_MAX)

    async def count(self, queue: Queue) -> Counts:
        """Count, or tell what was counted a moment ago and sent since. Calls share a count that is yet to begin."""
        latest = self._latest.get(queue.id)
        if latest is not None and asyncio.get_running_loop().time() < latest.believed_until_s:
            return latest.counts
        waiting = self._waiting.get(queue.id)
        if waiting is None:
            waiting = self._waiting[queue.id] = asyncio.ensure_future(self._count(queue))
            self._counting.add(waiting)
            waiting.add_done_callback(self._counted)
        return await asyncio.shield(waiting)

    def sent(self, queue: Queue, drafts: Sequence[Draft | Refused], results: Sequence[SendResult]) -> None:
        """Take note of what this node has stored, and not of an earlier answer that was given again."""
        latest = self._latest.get(queue.id)
        if latest is None:
            return
        for draft, result in zip(drafts, results, strict=True):
            if isinstance(draft, Draft) and isinstance(result, Sent) and draft.message_id == result.message_id:
                if draft.delay_ms:
                    latest.delayed += 1
                else:
                    latest.visible += 1

    def _counted(self, done: asyncio.Future[Counts]) -> None:
        self._counting.discard(done)
        if not done.cancelled():
            # It is raised to whoever waits; if they have all gone, it concerns nobody.
            done.exception()

    def forget(self, queue: Queue) -> None:
        """Believe nothing of a queue that was purged or deleted."""
        self._latest.pop(queue.id, None)

    async def close(self) -> None:
        """Return once nothing is being counted."""
        if self._counting:
            await asyncio.wait(self._counting)

    async def _count(self, queue: Queue) -> Counts:
        async with self._places:
            del self._waiting[queue.id]
            if len(self._latest) >= QUEUES_MAX:
                self._latest.clear()
            count = self._latest[queue.id] = _Count()
            started_s = asyncio.get_running_loop().time()
            try:
                count.counted = await self._work.read(lambda session: self._query(session, queue))
                count.believed_until_s = self._believed_until_s(count.counted, started_s)
            finally:
                if not count.believed_until_s and self._latest.get(queue.id) is count:
                    del self._latest[queue.id]
        return count.counted

    def _believed_until_s(self, counted: Counts, started_s: float) -> float:
        """Say until when a count that has just been made is believed; 0: not at all."""
        now_s = asyncio.get_running_loop().time()
        took_s = now_s - started_s
        cheap = counted.visible + counted.in_flight + counted.delayed <= COUNTED_ANEW_MAX
        if self._clock.pinned_ms is not None or (cheap and took_s <= COUNTED_ANEW_S_MAX):
            return 0.0
        return now_s + BELIEVED_FACTOR * took_s

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
