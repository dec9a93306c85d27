"""Retrying by hand: what was given up runs again, what waits runs now."""

from __future__ import annotations

import pytest

from penstock.domain.job import JobState
from penstock.domain.job_errors import JobDoesNotExist, JobStateConflict
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import counted, draft, enqueue, event_kinds, fail, finish, offer, offered_ids, start


async def test_a_dead_job_comes_back_with_fresh_budgets(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue, draft(retry=RetryPolicy(attempts_max=2, jitter=False)))
    await fail(jobs, await start(jobs, queue))
    await clock.advance(seconds=1)
    await fail(jobs, await start(jobs, queue))
    job = await jobs.retry(job_id)
    assert (job.state, job.failures, job.losses, job.attempts) == (JobState.QUEUED, 0, 0, 2)
    assert (job.finished_at_ms, job.due_at_ms) == (None, None)
    assert len(job.history) == 2
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}
    lease = await start(jobs, queue)
    assert lease.attempt == 3
    assert (await fail(jobs, lease)).state is JobState.RETRYING
    assert await event_kinds(jobs, job_id) == ["job.failed", "job.dead", "job.retried", "job.failed"]


async def test_a_cancelled_job_comes_back(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    await jobs.cancel(job_id)
    await fail(jobs, lease)
    job = await jobs.retry(job_id)
    assert (job.state, job.cancel_requested) == (JobState.QUEUED, False)
    await finish(jobs, await start(jobs, queue))


@pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.RETRYING])
async def test_what_waits_is_due_now(jobs: JobStore, queue: JobQueue, state: JobState) -> None:
    [job_id] = await enqueue(jobs, queue, draft(delay_ms=10_000 * (state is JobState.SCHEDULED)))
    if state is JobState.RETRYING:
        await fail(jobs, await start(jobs, queue))
    job = await jobs.retry(job_id)
    assert (job.state, job.failures) == (JobState.QUEUED, int(state is JobState.RETRYING))
    assert await offered_ids(jobs, queue) == [job_id]


async def test_what_is_queued_is_left_so(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    before = await jobs.job(job_id)
    assert await jobs.retry(job_id) == before
    assert await event_kinds(jobs, job_id) == []


@pytest.mark.parametrize("state", [JobState.OFFERED, JobState.RUNNING, JobState.SUCCEEDED])
async def test_what_is_in_hand_or_done_is_not_retried(jobs: JobStore, queue: JobQueue, state: JobState) -> None:
    [job_id] = await enqueue(jobs, queue)
    if state is JobState.OFFERED:
        await offer(jobs, queue)
    else:
        lease = await start(jobs, queue)
        if state is JobState.SUCCEEDED:
            await finish(jobs, lease)
    before = await jobs.job(job_id)
    with pytest.raises(JobStateConflict):
        await jobs.retry(job_id)
    assert await jobs.job(job_id) == before


async def test_nobody_retries_what_is_not_there(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(JobDoesNotExist):
        await jobs.retry("nobody")


@pytest.mark.parametrize("unique_key", [None, "only"])
async def test_a_job_that_was_lost_for_good_comes_back(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, unique_key: str | None
) -> None:
    [job_id] = await enqueue(jobs, queue, draft(retry=RetryPolicy(losses_max=1), unique_key=unique_key))
    await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    job = await jobs.retry(job_id)
    assert (job.state, job.losses) == (JobState.QUEUED, 0)
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}
    assert await event_kinds(jobs, job_id) == ["job.dead", "job.retried"]
    assert await offered_ids(jobs, queue) == [job_id]
