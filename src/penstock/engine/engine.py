"""The engine: the use cases wired to one store, and the work that goes on in the background."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from penstock.domain.job_limits import JobLimits
from penstock.engine.jobs.jobs import Jobs
from penstock.engine.messages import Messages
from penstock.engine.moves import Moves
from penstock.engine.queues import Queues
from penstock.engine.upkeep import Upkeep
from penstock.engine.waiters import Waiters

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.limits import Limits
    from penstock.store.port import Store


class Engine:
    """Everything that the service does, on a store that stays the caller's to close.

    Used with `async with` it also sweeps and carries out move tasks in the background; without, nothing happens by
    itself.
    """

    def __init__(
        self, store: Store, *, clock: Clock, ids: IdSource, limits: Limits, job_limits: JobLimits | None = None
    ) -> None:
        self._store = store
        self._limits = limits
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
            limits=job_limits or JobLimits(),
            waiters_per_queue_max=limits.waiters_per_queue_max,
            sweep_interval_ms=limits.sweep_interval_ms,
        )
        store.listen(self._waiters.wake)

    async def __aenter__(self) -> Self:
        self._background = [
            asyncio.create_task(upkeep.run(), name=upkeep.name)
            for upkeep in (self._sweeper, self._mover, *self.jobs.upkeep)
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the long polls with what there is, and the background work. What was to be given back is."""
        self.end_waits()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.jobs.settle()
        await self.jobs.workers.close()

    @property
    def long_polls(self) -> int:
        """How many receives wait for a message."""
        return self._waiters.parked

    def end_waits(self) -> None:
        """Let every long poll look once more and answer, and let no further one wait."""
        self._waiters.close()
        self.jobs.end_waits()

    async def _sweep(self) -> int | None:
        return 0 if await self._store.sweep() else None
