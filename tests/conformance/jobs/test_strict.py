"""Strict queues: consistency before availability."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.job import JobState
from penstock.domain.job_errors import IdempotencyKeyNeeded, JobRefused
from penstock.domain.job_queue import JobQueue, Rate
from penstock.store.job_port import Enqueued, JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    enqueue_one,
    fail,
    finish,
    key_of,
    make_queue,
    start,
)
from tests.support.stores import Home, on_postgres


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    return await make_queue(jobs, strict=True, depth_max=10)


async def test_a_job_needs_a_key(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(await enqueue_one(jobs, queue), IdempotencyKeyNeeded)
    await enqueue(jobs, queue, draft(idempotency_key=key_of("a")))
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}


async def test_a_lost_attempt_is_not_run_again_by_itself(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue, draft(idempotency_key=key_of("a")))
    await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    await advance(jobs)
    job = await jobs.job(job_id)
    assert job.state is JobState.DEAD
    assert job.failure is not None
    assert job.failure.kind == "lost"
    await jobs.retry(job_id)
    await finish(jobs, await start(jobs, queue))


async def test_nor_is_one_that_ran_too_long(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue, draft(idempotency_key=key_of("a"), timeout_ms=1_000))
    await start(jobs, queue)
    await clock.advance(seconds=1)
    await advance(jobs)
    job = await jobs.job(job_id)
    assert job.state is JobState.DEAD
    assert job.failure is not None
    assert job.failure.kind == "timeout"


async def test_an_attempt_that_is_known_to_have_failed_is(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, draft(idempotency_key=key_of("a")))
    assert (await fail(jobs, await start(jobs, queue))).state is JobState.RETRYING


@on_postgres
async def test_the_bound_is_exact_over_nodes(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    other = (await home.open()).jobs
    await _check_exact([jobs, other], queue, 10)


@on_postgres
async def test_the_rate_is_exact_over_nodes(home: Home, jobs: JobStore) -> None:
    queue = await make_queue(jobs, "rated", strict=True, rate=Rate(per_second=0.001, burst=7))
    other = (await home.open()).jobs
    await _check_exact([jobs, other], queue, 7)


async def _check_exact(nodes: list[JobStore], queue: JobQueue, number: int) -> None:
    answers = await asyncio.gather(
        *(enqueue_one(nodes[each % 2], queue, draft(idempotency_key=key_of(str(each)))) for each in range(number + 20))
    )
    assert sum(isinstance(answer, Enqueued) for answer in answers) == number
    assert sum(isinstance(answer, JobRefused) for answer in answers) == 20
    assert await counted(nodes[0], queue) == {JobState.QUEUED: number}
