"""What callers do to a job queue through the store port: enqueue, take the offers, accept and complete."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.errors import WorkFailed
from benchmarks.timing import measure
from benchmarks.workload import make_bodies
from penstock.domain.ids import OrderedIds
from penstock.domain.job import JobDraft
from penstock.store.job_port import Accept, Complete, Enqueued, Reported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.timing import Budget, Rate
    from penstock.domain.job_queue import JobQueue
    from penstock.store.job_port import JobStore, Report

_WORKER = "bench"


class JobCycles:
    """One queue, and callers of the store that run jobs through it."""

    def __init__(self, store: JobStore, queue: JobQueue, *, callers: int, batch: int, payload_bytes: int) -> None:
        self._store = store
        self._queue = queue
        self._callers = callers
        self._batch = batch
        self._ids = OrderedIds()
        self._payloads = itertools.cycle([b'"%b"' % body.encode() for body in make_bodies(payload_bytes)])

    async def cycle(self, budget: Budget) -> Rate:
        """Measure lifecycles: each caller enqueues a batch, is offered as many, accepts and completes those."""
        return await measure(self._cycle, callers=self._callers, batch=self._batch, budget=budget)

    async def _cycle(self, count: int) -> int:
        drafts = [
            JobDraft(id=self._ids.new_id(), task="measured", payload=payload)
            for payload in itertools.islice(self._payloads, count)
        ]
        for entry in await self._store.enqueue(self._queue, drafts):
            if not isinstance(entry, Enqueued):
                raise WorkFailed(f"a job was refused: {entry}")
        offers = (await self._store.offer(self._queue, count=count, worker=_WORKER)).offers
        if not offers:
            return 0  # Others were quicker; the next round makes up for it.
        leases = [offer.lease for offer in offers]
        await self._report([Accept(lease) for lease in leases])
        await self._report([Complete(lease, b"1024") for lease in leases])
        return len(leases)

    async def _report(self, reports: Sequence[Report]) -> None:
        for answer in await self._store.report(reports):
            if not isinstance(answer, Reported):
                raise WorkFailed(f"a report was refused: {answer}")
