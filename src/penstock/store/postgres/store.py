"""The store's verbs on PostgreSQL: each of them hands its work to the part that does it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

import asyncpg

from penstock.domain.errors import StoreUnavailable
from penstock.domain.message import Draft, Receipt
from penstock.store.port import StoreVersion
from penstock.store.postgres.appends import Append, Appends
from penstock.store.postgres.attempts import unavailable
from penstock.store.postgres.counts import InFlight, MessageCounts
from penstock.store.postgres.floor import Floors
from penstock.store.postgres.jobs import PostgresRunner
from penstock.store.postgres.lanes import Lane
from penstock.store.postgres.leases import Lease, Leases
from penstock.store.postgres.migrations import migrate
from penstock.store.postgres.moves import Moves
from penstock.store.postgres.peeks import Peeks
from penstock.store.postgres.pinned import PinnedClock
from penstock.store.postgres.pool import Pool
from penstock.store.postgres.queues import QueueCache, Queues, check_exists
from penstock.store.postgres.receipts import Receipts, Settlement
from penstock.store.postgres.staging import PostgresJobs
from penstock.store.postgres.sweep import Sweep
from penstock.store.postgres.wake import Wake
from penstock.store.postgres.work import Work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.errors import PenstockError
    from penstock.domain.failpoints import Failpoints
    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits
    from penstock.domain.limits import Limits
    from penstock.domain.message import MessageState, Refused, SendResult, VisibilityChange
    from penstock.domain.move import MoveTask
    from penstock.domain.queue import Counts, Queue, QueueAttributes, QueueName
    from penstock.store.port import AttemptKey, Leased, Peek
    from penstock.store.postgres.lanes import Answer, AnyOperation, Batch, Done
    from penstock.store.postgres.pool import Session
    from penstock.store.postgres.receipts import Judgement

_log = logging.getLogger(__name__)

CONNECTIONS_MAX = 16
"""Per node, besides the one that listens: more of them made it slower."""

PING_TIMEOUT_S = 5.0


class PostgresStore:
    """Queues and messages in a PostgreSQL database, which any number of nodes share.

    All of it is in the schema `penstock`. All nodes connect as the same role.
    """

    def __init__(
        self,
        dsn: str,
        secret: bytes,
        *,
        clock: Clock,
        ids: IdSource,
        limits: Limits,
        job_limits: JobLimits | None,
        failpoints: Failpoints,
    ) -> None:
        self._secret = secret
        self._limits = limits
        self._failpoints = failpoints
        self._closing = False
        self._releases: set[asyncio.Task[None]] = set()
        cache = QueueCache()
        pinned = PinnedClock(clock)
        self._pool = Pool(dsn, size=CONNECTIONS_MAX, lost=self._connection_lost)
        self._floors = Floors(self._pool, pinned)
        self._wake = Wake(dsn, cache, lost=self._connection_lost)
        self._cache = cache
        work = Work(self._pool, clock=pinned, limits=limits, failpoints=failpoints, new_key=_new_key)
        self._work = work
        self._queues = Queues(work, cache, pinned, limits)
        self._counts = MessageCounts(work, pinned)
        self._moves = Moves(work, clock=pinned, ids=ids, limits=limits, arrived=self._wake.arrived)
        self._peeks = Peeks(work, pinned, limits)
        self._sweep = Sweep(work, pinned, limits)

        self._job_runner = PostgresRunner(self._pool, self._wake, pinned, failpoints)
        self.jobs = PostgresJobs(self._job_runner, ids=ids, limits=job_limits)

        self._outcomes = Appends(pinned, limits)
        leases = Leases(pinned, limits, floors=self._floors, in_flight=InFlight(pinned), new_key=_new_key)
        receipts = Receipts(pinned, limits)
        # Each pair: standard queues, FIFO queues.
        self._append = self._lanes(self._outcomes.standard, self._outcomes.fifo, width=2)
        # A lease passes over what another one holds for a moment, and is to come again soon. Where time stands still
        # there is no soon, so they go one after the other.
        self._lease = self._lanes(leases.standard, leases.fifo, width=2 if pinned.pinned_ms is None else 1)
        self._delete = self._lanes(receipts.delete, receipts.delete_fifo)
        self._change = self._lanes(receipts.change, receipts.change_fifo)
        self._release = self._lanes(receipts.release, receipts.release_fifo)
        self._background = [
            asyncio.create_task(self._wake.run(), name="penstock-wake"),
            asyncio.create_task(self._floors.run(), name="penstock-floors"),
        ]

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        clock: Clock,
        ids: IdSource,
        limits: Limits,
        job_limits: JobLimits | None = None,
        failpoints: Failpoints,
    ) -> PostgresStore:
        """Connect, bring the schema up to date, and return the store.

        Raises `StoreUnavailable` if the database cannot be reached, `StoreIncompatible` if it is newer or not ours.
        """
        pool = Pool(dsn, size=1, lost=lambda: None)
        try:
            async with pool.session() as session:
                secret = await migrate(session)
        except (OSError, asyncpg.PostgresError) as error:
            raise unavailable(error) from error
        finally:
            await pool.close()
        store = cls(dsn, secret, clock=clock, ids=ids, limits=limits, job_limits=job_limits, failpoints=failpoints)
        # Other nodes are heard from now on; but a store that cannot listen still works.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PING_TIMEOUT_S):
                await store._wake.listening.wait()
        return store

    @property
    def secret(self) -> bytes:
        """The key that signs receipt handles."""
        return self._secret

    def listen(self, ready: Callable[[int, int], None]) -> None:
        """Report arrivals, those of other nodes too."""
        self._wake.listen(ready)

    async def close(self) -> None:
        """Finish what is under way, refuse what comes after, and let go of all resources."""
        if self._closing:
            return
        self._closing = True
        for lanes in (self._append, self._lease, self._delete, self._change):
            for lane in lanes:
                await lane.close()
        if self._releases:
            await asyncio.wait(self._releases)
        for lane in self._release:
            await lane.close()
        await self._counts.close()
        await self.jobs.close()
        await self._job_runner.close()
        for task in self._background:
            task.cancel()
        ended = await asyncio.gather(*self._background, return_exceptions=True)
        await self._pool.close()
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def ping(self) -> None:
        """Write something, at once and without trying again."""
        self._check_open()
        try:
            async with asyncio.timeout(PING_TIMEOUT_S), self._pool.session() as session:
                await session.fetch("SELECT penstock.confirm(0)")
        except (OSError, asyncpg.PostgresError) as error:
            raise unavailable(error) from error

    async def version(self) -> StoreVersion:
        """Ask the database, at once and without trying again."""
        self._check_open()
        try:
            async with asyncio.timeout(PING_TIMEOUT_S), self._pool.session() as session:
                server: str = await session.fetchval("SELECT current_setting('server_version')")
                schema: int = await session.fetchval("SELECT max(number) FROM penstock.migration")
        except (OSError, asyncpg.PostgresError) as error:
            raise unavailable(error) from error
        # Distributions add their own version in brackets.
        return StoreVersion(database=f"PostgreSQL {server.partition(' ')[0]}", schema=schema)

    # -- queues -----------------------------------------------------------------------------------

    async def create_queue(
        self, name: QueueName, attributes: QueueAttributes, tags: Mapping[str, str]
    ) -> tuple[Queue, bool]:
        """Create a queue, or return the one that has this name."""
        self._check_open()
        return await self._queues.create(name, attributes, tags)

    async def find_queue(self, name: QueueName) -> Queue:
        """Return a queue."""
        self._check_open()
        return await self._queues.find(name)

    async def list_queues(
        self, region: str, account: str, *, prefix: str = "", after: str = "", limit: int
    ) -> list[Queue]:
        """Return queues in the order of their names."""
        self._check_open()
        return await self._queues.page(region, account, prefix, after, limit)

    async def list_places(self, *, after: tuple[str, str] = ("", ""), limit: int) -> list[tuple[str, str]]:
        """Return the regions and accounts that have queues."""
        self._check_open()
        return await self._queues.places(after, limit)

    async def dead_letter_sources(self, name: QueueName, *, after: str = "", limit: int) -> list[Queue]:
        """Return the queues whose redrive policy names this one."""
        self._check_open()
        return await self._queues.sources(name, after, limit)

    async def save_queue(
        self,
        queue: Queue,
        *,
        attributes: QueueAttributes | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Queue | None:
        """Replace attributes or tags, if the queue was not changed since."""
        self._check_open()
        return await self._queues.save(queue, attributes, tags)

    async def delete_queue(self, queue: Queue) -> None:
        """Delete a queue with all its messages."""
        self._check_open()
        await self._queues.delete(queue)
        self._counts.forget(queue)

    async def purge_queue(self, queue: Queue) -> None:
        """Remove all messages of a queue."""
        self._check_open()
        await self._queues.purge(queue)
        self._counts.forget(queue)

    async def count_messages(self, queue: Queue) -> Counts:
        """Count the messages of a queue."""
        self._check_open()
        return await self._counts.count(queue)

    # -- messages ---------------------------------------------------------------------------------

    async def append(
        self, queue: Queue, drafts: Sequence[Draft | Refused], *, attempt: AttemptKey | None = None
    ) -> list[SendResult]:
        """Store messages."""
        self._check_open()
        if any(isinstance(draft, Draft) for draft in drafts):
            lane = self._append[queue.fifo]
            results = await lane.submit(Append(queue, drafts, attempt or _new_key()))
            self._counts.sent(queue, drafts, results)
            return results
        kept = None if attempt is None else await self.outcome(attempt)
        if kept is not None:
            return kept
        await self._work.read(lambda session: check_exists(session, queue))
        return [draft for draft in drafts if not isinstance(draft, Draft)]

    async def outcome(self, attempt: AttemptKey) -> list[SendResult] | None:
        """Return the answer kept with the key of an earlier append."""
        self._check_open()
        return await self._work.read(lambda session: self._outcomes.outcome(session, attempt))

    async def lease(
        self, queue: Queue, *, count: int, lease_ms: int, attempt: AttemptKey | None = None, retry: int = 0
    ) -> Leased:
        """Lease visible messages."""
        self._check_open()
        return await self._lease[queue.fifo].submit(Lease(queue, count, lease_ms, attempt, retry, self._give_back))

    async def peek(self, queue: Queue, *, state: MessageState | None = None, after: int = 0, limit: int) -> Peek:
        """Show messages without receiving them."""
        self._check_open()
        return await self._peeks.peek(queue, state, after, limit)

    def _give_back(self, queue: Queue, leased: Leased) -> None:
        """Release what nobody waits for any more. Should that fail, it comes back when its lease is over."""
        release = asyncio.create_task(self._release_abandoned(queue, leased))
        self._releases.add(release)
        release.add_done_callback(self._released)

    async def _release_abandoned(self, queue: Queue, leased: Leased) -> None:
        receipts = [Receipt(queue.id, message.position, message.receipt) for message in leased.messages]
        await self._settle(self._release, Settlement("release", queue, receipts, holder=leased.holder))

    def _released(self, release: asyncio.Task[None]) -> None:
        self._releases.discard(release)
        if not release.cancelled() and release.exception() is not None:
            _log.warning("A lease whose caller went away could not be given back: %s", release.exception())

    async def release(self, queue: Queue, receipts: Sequence[Receipt], *, holder: int = 0) -> None:
        """Undo deliveries that never reached their consumer."""
        self._check_open()
        await self._settle(self._release, Settlement("release", queue, receipts, holder=holder))

    async def delete(self, queue: Queue, receipts: Sequence[Receipt]) -> list[PenstockError | None]:
        """Delete the messages that receipts name."""
        self._check_open()
        return await self._settle(self._delete, Settlement("delete", queue, receipts))

    async def change_visibility(self, queue: Queue, changes: Sequence[VisibilityChange]) -> list[PenstockError | None]:
        """Hide leased messages for another time from now on."""
        self._check_open()
        settlement = Settlement(
            "change_visibility",
            queue,
            [change.receipt for change in changes],
            [change.lease_ms for change in changes],
        )
        return await self._settle(self._change, settlement)

    # -- message move tasks -----------------------------------------------------------------------

    async def start_move(
        self,
        task_id: str,
        source: Queue,
        destination: Queue | None,
        rate: int | None,
        *,
        permitted: Collection[QueueName] | None = None,
    ) -> MoveTask:
        """Begin to move the visible messages of a queue."""
        self._check_open()
        return await self._moves.start(task_id, source, destination, rate, permitted)

    async def cancel_move(self, task_id: str) -> MoveTask:
        """Stop a running task."""
        self._check_open()
        return await self._moves.cancel(task_id)

    async def list_moves(self, source: Queue, *, limit: int) -> list[MoveTask]:
        """Return the tasks of a queue, newest first."""
        self._check_open()
        return await self._moves.tasks(source, limit)

    async def advance_moves(self) -> int | None:
        """Do one bounded step of every running task that is due."""
        self._check_open()
        return await self._moves.advance()

    # -- upkeep -----------------------------------------------------------------------------------

    async def sweep(self) -> bool:
        """Do one bounded pass of upkeep."""
        self._check_open()
        return await self._sweep.sweep()

    async def _settle(self, lanes: Sequence[Lane[Settlement, Judgement]], settlement: Settlement) -> Judgement:
        if settlement.receipts:
            return await lanes[settlement.queue.fifo].submit(settlement)
        await self._work.read(lambda session: check_exists(session, settlement.queue))
        return []

    def _lanes(
        self,
        standard: Callable[[Session, Batch[AnyOperation]], Awaitable[Done[Answer]]],
        fifo: Callable[[Session, Batch[AnyOperation]], Awaitable[Done[Answer]]],
        *,
        width: int = 1,
    ) -> tuple[Lane[AnyOperation, Answer], Lane[AnyOperation, Answer]]:
        def lane(
            execute: Callable[[Session, Batch[AnyOperation]], Awaitable[Done[Answer]]],
        ) -> Lane[AnyOperation, Answer]:
            return Lane(
                execute,
                pool=self._pool,
                failpoints=self._failpoints,
                arrived=self._wake.arrived,
                new_key=_new_key,
                width=width,
                pending_max=self._limits.pending_operations_max,
            )

        return lane(standard), lane(fifo)

    def _connection_lost(self) -> None:
        self._floors.reset()
        self._cache.clear()

    def _check_open(self) -> None:
        if self._closing:
            raise StoreUnavailable("The store is closed.")


def _new_key() -> bytes:
    # Not from the id source: nodes of a test may count the same numbers, and these must never meet.
    return os.urandom(16)
