"""Failures: tried again, later and later, until it is enough."""

from __future__ import annotations

import pytest

from penstock.domain.job import AttemptOutcome, Failure, JobState
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import counted, draft, enqueue, event_kinds, fail, make_queue, offer, start, state_of


async def test_a_failed_job_is_tried_again_after_its_backoff(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    [job_id] = await enqueue(jobs, queue)
    for number, wait_ms in enumerate((1_000, 2_000, 4_000), 1):
        lease = await start(jobs, queue)
        assert lease.attempt == number
        answer = await fail(jobs, lease, "Broken", message=f"no {number}")
        assert (answer.state, answer.until_ms) == (JobState.RETRYING, clock.now_ms() + wait_ms)
        job = await jobs.job(job_id)
        assert (job.failures, job.losses, job.attempts) == (number, 0, number)
        assert job.failure == Failure(kind="Broken", message=f"no {number}")
        await clock.advance(ms=wait_ms - 1)
        assert await offer(jobs, queue) == []
        await clock.advance(ms=1)
    assert [attempt.outcome for attempt in (await jobs.job(job_id)).history] == [AttemptOutcome.FAILED] * 3
    assert await event_kinds(jobs, job_id) == ["job.failed"] * 3


async def test_a_job_is_dead_after_its_last_attempt(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue, draft(retry=RetryPolicy(attempts_max=2, jitter=False)))
    assert (await fail(jobs, await start(jobs, queue))).state is JobState.RETRYING
    await clock.advance(seconds=1)
    answer = await fail(jobs, await start(jobs, queue), "Broken")
    assert (answer.state, answer.until_ms) == (JobState.DEAD, None)
    job = await jobs.job(job_id)
    assert (job.state, job.finished_at_ms, job.failures) == (JobState.DEAD, clock.now_ms(), 2)
    assert job.failure == Failure(kind="Broken")
    assert await counted(jobs, queue) == {JobState.DEAD: 1}
    assert await event_kinds(jobs, job_id) == ["job.failed", "job.dead"]
    assert await jobs.advance() is None


async def test_a_permanent_failure_is_the_last(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    assert (await fail(jobs, await start(jobs, queue), permanent=True)).state is JobState.DEAD
    assert await state_of(jobs, job_id) is JobState.DEAD


async def test_a_failure_may_ask_for_a_longer_wait(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue)
    answer = await fail(jobs, await start(jobs, queue), retry_after_ms=90_000)
    assert answer.until_ms == clock.now_ms() + 90_000


@pytest.mark.parametrize("own", [False, True])
async def test_jitter_waits_a_part_of_the_backoff(jobs: JobStore, clock: ManualClock, *, own: bool) -> None:
    jittered = RetryPolicy(backoff_ms=10_000)
    queue = await make_queue(jobs) if own else await make_queue(jobs, retry=jittered)
    await enqueue(jobs, queue, *(draft(retry=jittered if own else None) for _ in range(5)))
    for _ in range(5):
        answer = await fail(jobs, await start(jobs, queue))
        assert answer.until_ms is not None
        assert clock.now_ms() <= answer.until_ms < clock.now_ms() + 10_000


async def test_a_job_follows_the_policy_that_its_queue_has_by_then(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    settings = type(queue.settings)(retry=RetryPolicy(attempts_max=1))
    assert await jobs.save_queue(queue, settings=settings) is not None
    assert (await fail(jobs, lease)).state is JobState.DEAD
    assert await state_of(jobs, job_id) is JobState.DEAD
