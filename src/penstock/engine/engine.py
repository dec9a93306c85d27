"""The engine: the use cases wired to one store, and the work that goes on in the background."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

from penstock.domain.clock import SystemClock
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import Limits
from penstock.engine.jobs.jobs import Jobs
from penstock.engine.messages import Messages
from penstock.engine.moves import Moves
from penstock.engine.queues import Queues
from penstock.engine.upkeep import Upkeep
from penstock.engine.waiters import Waiters
from penstock.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from penstock.domain.clock import Clock
    from penstock.domain.failpoints import Failpoints
    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits
    from penstock.store.job_port import ReadStaged
    from penstock.store.port import Store, StoreVersion


class Engine:
    """Queues, messages, moves and jobs on one store, without HTTP.

    `Engine.open` is how to get one:

        async with Engine.open("sqlite:jobs.db") as engine:
            stored = await engine.jobs.enqueueing.enqueue("mail", JobRequest(task="greet"))
            job = await engine.jobs.looking.job(stored.job_id)

    The constructor is for tests that bring a store of their own. That store stays theirs to close. `async with` then
    starts the background work; without it, nothing happens by itself.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: IdSource,
        limits: Limits,
        read_staged: ReadStaged | None = None,
    ) -> None:
        self.store = store
        """The port below the use cases, for benchmarks and tests of it."""
        self.clock = clock
        self.ids = ids
        self.limits = limits
        self._sweeper = Upkeep("sweeper", clock, self._sweep, idle_ms=limits.sweep_interval_ms)
        self._mover = Upkeep("mover", clock, store.advance_moves, idle_ms=limits.sweep_interval_ms)
        self._background: list[asyncio.Task[None]] = []
        self._waiters = Waiters(clock, per_queue_max=limits.waiters_per_queue_max)
        self.queues = Queues(store, self._waiters, limits)
        self.messages = Messages(store, self._waiters, clock, ids, limits)
        self.moves = Moves(store, ids, limits, self._mover.wake)
        self.jobs = Jobs(
            store.jobs,
            clock=clock,
            ids=ids,
            waiters_per_queue_max=limits.waiters_per_queue_max,
            sweep_interval_ms=limits.sweep_interval_ms,
            read_staged=read_staged,
        )
        store.listen(self._waiters.wake)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        limits: Limits | None = None,
        job_limits: JobLimits | None = None,
        failpoints: Failpoints | None = None,
        upkeep: bool = True,
        read_staged: ReadStaged | None = None,
    ) -> AsyncIterator[Self]:
        """Open the store that a URL names (`memory:`, `sqlite:PATH`, `postgresql://…`) and everything on it.

        With `upkeep=False` this process runs no background work (sweeps, schedules, operations, jobs that come due):
        other nodes of the same database do it. `read_staged` reads jobs that users' own transactions have staged in a
        PostgreSQL database, `penstock.wire.jobs.staging.read_staged` for example; without it, other nodes take those
        in. Raises what `open_store` raises.
        """
        clock, ids, limits = clock or SystemClock(), ids or OrderedIds(), limits or Limits()
        store = await open_store(url, clock=clock, ids=ids, limits=limits, job_limits=job_limits, failpoints=failpoints)
        try:
            engine = cls(store, clock=clock, ids=ids, limits=limits, read_staged=read_staged)
            try:
                if upkeep:
                    engine.start_upkeep()
                yield engine
            finally:
                await engine._stop()
        finally:
            await store.close()

    async def __aenter__(self) -> Self:
        self.start_upkeep()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    def start_upkeep(self) -> None:
        """Begin the background work, if it has not begun."""
        if self._background:
            return
        self._background = [
            asyncio.create_task(upkeep.run(), name=upkeep.name)
            for upkeep in (self._sweeper, self._mover, *self.jobs.upkeep)
        ]

    async def _stop(self) -> None:
        """End the long polls with what there is, and the background work. What was to be given back is."""
        self.end_waits()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.jobs.settle()
        await self.jobs.workers.close()

    @property
    def secret(self) -> bytes:
        """The store's key, which signs receipt handles, lease tokens and cursors."""
        return self.store.secret

    async def ping(self) -> None:
        """Return once the store has been read and written. Raises `StoreUnavailable`."""
        await self.store.ping()

    async def version(self) -> StoreVersion:
        """Return what the store runs on, for people. Raises `StoreUnavailable`."""
        return await self.store.version()

    @property
    def long_polls(self) -> int:
        """How many receives wait for a message."""
        return self._waiters.parked

    def end_waits(self) -> None:
        """Let every long poll look once more and answer, and let no further one wait."""
        self._waiters.close()
        self.jobs.end_waits()

    async def _sweep(self) -> int | None:
        return 0 if await self.store.sweep() else None
