from __future__ import annotations

import pytest

from penstock.domain.job import AttemptOutcome, Failure, JobState, Lane
from penstock.domain.job_errors import JobDoesNotExist
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Fail, JobStore, Release, Snooze
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.job_lives import add, complete
from tests.support.job_steps import WORKER, report, start


async def test_a_job_is_as_it_was_enqueued(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    retry = RetryPolicy(attempts_max=3, factor=1.5)
    lane = Lane(key="printer", width=4)
    job_id = await add(
        jobs,
        queue,
        task="print",
        payload=b'{"pages": [1, 2]}',
        priority=7,
        tenant="acme",
        lane=lane,
        timeout_ms=90_000,
        retry=retry,
        unique_key="u",
        tags=("a", "b"),
        trace="00-1-2-01",
        correlation_id="c",
    )
    job = await jobs.job(job_id)
    assert (job.id, job.queue, job.task, job.state) == (job_id, queue.name, "print", JobState.QUEUED)
    assert (job.payload, job.priority, job.tenant, job.lane) == (b'{"pages": [1, 2]}', 7, "acme", lane)
    assert (job.tags, job.unique_key, job.timeout_ms, job.retry) == (("a", "b"), "u", 90_000, retry)
    assert (job.trace, job.correlation_id) == ("00-1-2-01", "c")
    assert (job.enqueued_at_ms, job.due_at_ms, job.finished_at_ms) == (clock.now_ms(), None, None)
    assert (job.attempts, job.failures, job.losses) == (0, 0, 0)
    assert (job.result, job.failure, job.history, job.cancel_requested) == (None, None, (), False)


async def test_what_a_draft_leaves_open_is_the_queues(jobs: JobStore, queue: JobQueue) -> None:
    job = await jobs.job(await add(jobs, queue))
    assert job.timeout_ms == queue.settings.timeout_ms
    assert job.retry == queue.settings.retry
    assert job.lane is None


async def test_a_job_that_waits_says_when_it_is_due(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    job = await jobs.job(await add(jobs, queue, delay_ms=5_000))
    assert (job.state, job.due_at_ms) == (JobState.SCHEDULED, clock.now_ms() + 5_000)


async def test_a_finished_job_has_its_result(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add(jobs, queue)
    await clock.advance(seconds=1)
    job = await jobs.job(await complete(jobs, queue, b'{"sum": 3}'))
    assert (job.state, job.result, job.finished_at_ms) == (JobState.SUCCEEDED, b'{"sum": 3}', clock.now_ms())


async def test_a_result_of_nothing_is_a_result(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    assert (await jobs.job(await complete(jobs, queue))).result == b"null"


async def test_attempts_are_told_oldest_first(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    job_id = await add(jobs, queue)
    failure = Failure(kind="Busy", message="try later", details="line 1", retry_after_ms=2_000)
    started_ms = clock.now_ms()
    lease = await start(jobs, queue)
    await clock.advance(seconds=1)
    await report(jobs, Fail(lease, failure))
    await clock.advance(seconds=3_600)
    await report(jobs, Release(await start(jobs, queue)))
    await report(jobs, Snooze(await start(jobs, queue), 1_000))
    await clock.advance(seconds=1)
    await start(jobs, queue)
    job = await jobs.job(job_id)
    assert [attempt.number for attempt in job.history] == [1, 2, 3, 4]
    assert [attempt.outcome for attempt in job.history] == [
        AttemptOutcome.FAILED,
        AttemptOutcome.RELEASED,
        AttemptOutcome.SNOOZED,
        AttemptOutcome.RUNNING,
    ]
    first, *_, last = job.history
    assert (first.worker, first.started_at_ms, first.ended_at_ms) == (WORKER, started_ms, started_ms + 1_000)
    assert first.failure == job.failure == failure
    assert (last.ended_at_ms, last.failure) == (None, None)


async def test_of_many_attempts_the_last_are_told(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(jobs, ScriptedJobs)
    job_id = await add(jobs, queue)
    for _ in range(5):
        await report(jobs, Release(await start(jobs, queue)))
    job = await jobs.limited(JobLimits(attempts_shown_max=3)).job(job_id)
    assert [attempt.number for attempt in job.history] == [3, 4, 5]
    assert job.attempts == 5


async def test_a_missing_job(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(JobDoesNotExist):
        await jobs.job("job")
