"""Timeouts: an attempt that runs for too long is over."""

from __future__ import annotations

from penstock.domain.job import AttemptOutcome, JobState
from penstock.domain.job_errors import LeaseLost
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Complete, Heartbeat, JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import advance, draft, enqueue, event_kinds, make_queue, refused, report, start


async def run_out(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    lease = await start(jobs, queue)
    for _ in range(2):
        await clock.advance(ms=9_000)
        await report(jobs, Heartbeat(lease))
    await clock.advance(ms=2_000)
    assert isinstance(await refused(jobs, Complete(lease)), LeaseLost)


async def test_an_attempt_that_runs_too_long_has_failed(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, lease_ms=10_000)
    [job_id] = await enqueue(jobs, queue, draft(timeout_ms=20_000, retry=RetryPolicy(attempts_max=2, jitter=False)))
    await run_out(jobs, queue, clock)
    job = await jobs.job(job_id)
    assert (job.state, job.failures, job.losses) == (JobState.RETRYING, 1, 0)
    assert job.failure is not None
    assert job.failure.kind == "timeout"
    assert job.due_at_ms == clock.now_ms() + 1_000
    await clock.advance(seconds=1)
    await run_out(jobs, queue, clock)
    job = await jobs.job(job_id)
    assert (job.state, job.failures) == (JobState.DEAD, 2)
    assert [attempt.outcome for attempt in job.history] == [AttemptOutcome.TIMED_OUT] * 2
    assert await event_kinds(jobs, job_id) == ["job.timed_out", "job.dead"]


async def test_advance_ends_attempts_that_run_too_long(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, timeout_ms=5_000)
    [job_id] = await enqueue(jobs, queue)
    await start(jobs, queue)
    assert await jobs.advance() == 5_000
    await clock.advance(seconds=5)
    await advance(jobs)
    job = await jobs.job(job_id)
    assert (job.state, job.failures, job.losses) == (JobState.RETRYING, 1, 0)


async def test_each_attempt_has_its_whole_time(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, timeout_ms=5_000)
    await enqueue(jobs, queue)
    for _ in range(2):
        await start(jobs, queue)
        await clock.advance(seconds=5)
        await advance(jobs)
        await clock.advance(seconds=10)
    lease = await start(jobs, queue)
    await clock.advance(ms=4_999)
    await report(jobs, Complete(lease))
