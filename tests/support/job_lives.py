"""Jobs, brought by tests to where they are to be."""

from __future__ import annotations

from typing import Any

from penstock.domain.job import Job, JobState
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import JobStore
from tests.support.job_steps import draft, enqueue, fail, finish, start


async def add(jobs: JobStore, queue: JobQueue, **fields: Any) -> str:
    """Enqueue one job, and return its id."""
    [job_id] = await enqueue(jobs, queue, draft(**fields))
    return job_id


async def add_many(jobs: JobStore, queue: JobQueue, number: int, **fields: Any) -> list[str]:
    """Enqueue several jobs in one call, and return their ids in order."""
    return await enqueue(jobs, queue, *(draft(**fields) for _ in range(number)))


async def complete(jobs: JobStore, queue: JobQueue, result: bytes = b"null") -> str:
    """Have the next job run and succeed, and return its id."""
    lease = await start(jobs, queue)
    await finish(jobs, lease, result)
    return lease.job_id


async def die(jobs: JobStore, queue: JobQueue, kind: str = "Broken") -> str:
    """Have the next job run and fail for good, and return its id."""
    lease = await start(jobs, queue)
    answer = await fail(jobs, lease, kind, message="no good", permanent=True)
    assert answer.state is JobState.DEAD
    return lease.job_id


def ids_of(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]
