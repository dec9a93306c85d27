"""What may have become of a job between a call and its repeat, as tables that tests go through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.domain.job import Lane
from penstock.domain.job_queue import JobQueue
from penstock.domain.operation import JobFilter, OperationKind
from penstock.store.job_port import JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import advance, fail, finish, offer, start

Step = Callable[[JobStore, JobQueue, ManualClock, str], Awaitable[object]]

OPERATIONS_MAX = 100


async def nothing(_jobs: JobStore, _queue: JobQueue, _clock: ManualClock, _job_id: str) -> None:
    """Leave the job queued."""


async def offered(jobs: JobStore, queue: JobQueue, _clock: ManualClock, job_id: str) -> None:
    [one] = await offer(jobs, queue, 1, "another")
    assert one.lease.job_id == job_id


async def running(jobs: JobStore, queue: JobQueue, _clock: ManualClock, _job_id: str) -> None:
    await start(jobs, queue, "another")


async def asked_to_stop(jobs: JobStore, queue: JobQueue, _clock: ManualClock, job_id: str) -> None:
    await start(jobs, queue, "another")
    await jobs.cancel(job_id)


async def retrying(jobs: JobStore, queue: JobQueue, _clock: ManualClock, _job_id: str) -> None:
    await fail(jobs, await start(jobs, queue, "another"))


async def succeeded(jobs: JobStore, queue: JobQueue, _clock: ManualClock, _job_id: str) -> None:
    await finish(jobs, await start(jobs, queue, "another"), b"17")


async def dead(jobs: JobStore, queue: JobQueue, _clock: ManualClock, _job_id: str) -> None:
    await fail(jobs, await start(jobs, queue, "another"), permanent=True)


async def cancelled(jobs: JobStore, _queue: JobQueue, _clock: ManualClock, job_id: str) -> None:
    await jobs.cancel(job_id)


async def retried(jobs: JobStore, queue: JobQueue, clock: ManualClock, job_id: str) -> None:
    await dead(jobs, queue, clock, job_id)
    await jobs.retry(job_id)


async def retried_and_dead_again(jobs: JobStore, queue: JobQueue, clock: ManualClock, job_id: str) -> None:
    await retried(jobs, queue, clock, job_id)
    await dead(jobs, queue, clock, job_id)


async def swept(jobs: JobStore, queue: JobQueue, clock: ManualClock, job_id: str) -> None:
    """Have it succeed, and the sweeper come by, more than once, in a queue that keeps nothing."""
    await succeeded(jobs, queue, clock, job_id)
    await clock.advance(seconds=200)
    while await jobs.sweep():
        pass


async def purged(jobs: JobStore, queue: JobQueue, _clock: ManualClock, job_id: str) -> None:
    await jobs.start_operation(f"purge of {job_id}", OperationKind.PURGE, queue, JobFilter(), None)
    await run_operations(jobs)


async def run_operations(jobs: JobStore) -> None:
    """Carry out all operations that are due."""
    for _ in range(OPERATIONS_MAX):
        if await jobs.advance_operations() is None:
            return
    raise AssertionError("the operations do not end")


async def lapsed(jobs: JobStore, queue: JobQueue, clock: ManualClock, job_id: str) -> None:
    """Have it lost by a worker."""
    await running(jobs, queue, clock, job_id)
    await clock.advance(ms=queue.settings.lease_ms)
    await advance(jobs)


SINCE: dict[str, Step] = {
    each.__name__: each
    for each in (
        nothing,
        offered,
        running,
        asked_to_stop,
        retrying,
        lapsed,
        succeeded,
        dead,
        cancelled,
        retried,
        retried_and_dead_again,
        swept,
        purged,
    )
}
"""What becomes of a job that is queued, by the name of what it comes to."""

GROUP, KEY = Lane(key="g", ordered=True), Lane(key="k")
