"""The job service: its use cases wired to one store, and the work that goes on in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.limits import MINUTE_MS
from penstock.engine.jobs.changes import Changes
from penstock.engine.jobs.enqueueing import Enqueueing
from penstock.engine.jobs.gathers import Gathers
from penstock.engine.jobs.looking import Looking
from penstock.engine.jobs.offering import Offering
from penstock.engine.jobs.operations import Operations
from penstock.engine.jobs.queues import JobQueues
from penstock.engine.jobs.reports import Reports
from penstock.engine.jobs.result_cache import ResultCache
from penstock.engine.jobs.returns import Returns
from penstock.engine.jobs.schedules import Schedules
from penstock.engine.jobs.staging import Staging
from penstock.engine.jobs.streams import Streams
from penstock.engine.jobs.workers import Workers
from penstock.engine.upkeep import Upkeep
from penstock.engine.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.store.job_port import JobStore, ReadStaged


SCHEDULES_LOOK_MS = MINUTE_MS
"""How often schedules are looked at, at least."""


class NextDue(NamedTuple):
    """In how many ms something is due: for a job or an operation, and by a schedule. None: nothing waits."""

    job_in_ms: int | None
    schedule_in_ms: int | None


class Jobs:
    """Everything that the service does with jobs, on a store that stays the caller's to close, under its limits."""

    def __init__(
        self,
        store: JobStore,
        *,
        clock: Clock,
        ids: IdSource,
        waiters_per_queue_max: int,
        sweep_interval_ms: int,
        read_staged: ReadStaged | None = None,
    ) -> None:
        limits = store.limits
        self.limits = limits
        self._store = store
        self._waiters = Waiters(clock, per_queue_max=waiters_per_queue_max)
        self._cache = ResultCache(clock, entries_max=limits.cached_results_max, ttl_ms=limits.cached_ms)
        self._changes = Changes(limits.streams_max)
        idle_ms = limits.advance_idle_ms
        # Clients without upkeep, and nodes that died, leave work that is due sooner than all that this node knows of.
        advancer = Upkeep("advancer of jobs", clock, store.advance, idle_ms=idle_ms, look_s=idle_ms / 1_000)
        scheduler = Upkeep("scheduler", clock, self._fire, idle_ms=idle_ms)
        operator = Upkeep("operator", clock, store.advance_operations, idle_ms=idle_ms)
        sweeper = Upkeep("sweeper of jobs", clock, self._sweep, idle_ms=sweep_interval_ms)
        lister = Upkeep("list of workers", clock, self._save_workers, idle_ms=limits.keep_alive_ms)
        self.upkeep = [advancer, scheduler, operator, sweeper, lister]
        self._returns = Returns(store, clock, limits)
        self.queues = JobQueues(store, self._waiters, limits)
        self.enqueueing = Enqueueing(store, self.queues, self._cache, clock, ids, limits, advancer.expect)
        self.gathers = Gathers(store, self.queues, clock, ids, limits, self._changes, advancer.expect)
        self.workers = Workers(store, clock, ids, limits, lister.expect)
        self.offering = Offering(
            store, self.queues, self._waiters, self._returns, self.workers, clock, limits, advancer.expect
        )
        self.streams = Streams(store, self.offering, self.workers, clock, ids, limits)
        self.reports = Reports(store, self.offering, self.streams, clock, limits, advancer.expect)
        self.staging = Staging(store, read_staged, advancer.expect)
        if self.staging.active:
            # A notification may be lost, so it looks without one, too.
            stager = Upkeep("stager", clock, self.staging.step, idle_ms=idle_ms, look_s=idle_ms / 1_000)
            self.upkeep.append(stager)
            store.listen_staged(stager.wake)
        self.looking = Looking(store, self._changes, clock, limits, self.staging)
        self.schedules = Schedules(store, self.queues, clock, ids, limits, scheduler.wake)
        self.operations = Operations(store, self.queues, ids, limits, operator.wake)
        store.listen(self._waiters.wake, self._changed)
        store.listen_heard(self.streams.heard_elsewhere)

    @property
    def draining(self) -> bool:
        """Whether the service is about to stop, so that workers should look elsewhere."""
        return self._waiters.closed

    @property
    def long_polls(self) -> int:
        """How many workers wait for a job."""
        return self._waiters.parked

    def steps(self) -> Mapping[str, int]:
        """Tell what happened to jobs by this node, and how often."""
        return self._store.steps()

    def end_waits(self) -> None:
        """Let every poll and stream end, and let no further one wait."""
        self._waiters.close()
        self.streams.end_waits()
        self.looking.end_waits()
        self.gathers.end_waits()

    async def settle(self) -> None:
        """Wait until all offers that never reached a worker have been given back."""
        await self._returns.settle()

    async def catch_up(self) -> NextDue:
        """Do all background work that is due now, in an engine that runs no upkeep, and say when there is more.

        For a clock that is moved by hand: upkeep would look at the store every few seconds of the time in between.
        """
        schedule_in_ms = await _until_later(self._store.fire_schedules)
        operation_in_ms = await _until_later(self._store.advance_operations)
        while await self._store.sweep():
            pass
        due_in_ms = await _until_later(self._store.advance)
        known_ms = [in_ms for in_ms in (operation_in_ms, due_in_ms) if in_ms is not None]
        return NextDue(min(known_ms, default=None), schedule_in_ms)

    def _changed(self, job_id: str) -> None:
        # Only a job that succeeded has a result to be kept, and that one changes only by being forgotten itself.
        self._cache.forget(job_id)
        self._changes.tell(job_id)

    async def _fire(self) -> int | None:
        next_in_ms = await self._store.fire_schedules()
        # Schedules go by the wall clock, which may be set forward meanwhile.
        return None if next_in_ms is None else min(next_in_ms, SCHEDULES_LOOK_MS)

    async def _save_workers(self) -> int | None:
        return await self.workers.save()

    async def _sweep(self) -> int | None:
        return 0 if await self._store.sweep() else None


async def _until_later(step: Callable[[], Awaitable[int | None]]) -> int | None:
    """Do a step again and again until the next is due later, and say in how many ms."""
    while (next_in_ms := await step()) == 0:
        pass
    return next_in_ms
