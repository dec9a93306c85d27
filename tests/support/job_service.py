"""Steps that tests of the job service take again and again."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Offer
from penstock.domain.job_queue import JobQueue
from penstock.domain.job_request import JobRequest
from penstock.engine.jobs.enqueueing import Stored
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Accept, Complete

QUEUE = "orders"


async def make_queue(jobs: Jobs, name: str = QUEUE, **settings: Any) -> JobQueue:
    """Make a queue with these settings."""
    queue, _ = await jobs.queues.create(name, lambda defaults: msgspec.structs.replace(defaults, **settings))
    return queue


async def enqueue(
    jobs: Jobs, task: str = "greet", *, queue: str = QUEUE, first_try: bool = False, **fields: Any
) -> Stored:
    """Enqueue a job."""
    return await jobs.enqueueing.enqueue(queue, JobRequest(task=task, **fields), first_try=first_try)


async def poll(
    jobs: Jobs, count: int = 1, *, queue: str = QUEUE, wait_ms: int = 0, worker: str = "worker-1"
) -> list[Offer]:
    """Be offered jobs."""
    return await jobs.offering.poll([queue], count=count, worker=worker, wait_ms=wait_ms)


async def accept(jobs: Jobs, **fields: Any) -> Offer:
    """Be offered one job, and accept it."""
    [offer] = await poll(jobs, **fields)
    await jobs.reports.report(Accept(offer.lease))
    return offer


async def finish(jobs: Jobs, result: bytes = b"null") -> str:
    """Carry out one job, and return its id."""
    offer = await accept(jobs)
    await jobs.reports.report(Complete(offer.lease, result))
    return offer.lease.job_id


async def parked(jobs: Jobs, count: int) -> None:
    """Wait until so many polls wait for a job."""
    while jobs.long_polls != count:  # noqa: ASYNC110 # Nothing tells, and a test's timeout ends it if it never does.
        await asyncio.sleep(0)


class Pause:
    """Holds a call up at a place of the store, until it is told to go on."""

    def __init__(self, failpoints: Failpoints, place: str) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        failpoints.arm(place, self._wait)

    async def _wait(self) -> None:
        self.reached.set()
        await self.go_on.wait()
