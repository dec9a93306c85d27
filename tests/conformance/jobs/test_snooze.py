"""Giving a job back, at once or for later: it costs no attempt."""

from __future__ import annotations

from penstock.domain.job import AttemptOutcome, JobState
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import JobStore, Release, Snooze
from penstock.testing import ManualClock
from tests.support.job_steps import counted, draft, enqueue, event_kinds, finish, offer, report, start


async def test_a_snoozed_job_comes_due_later(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue, draft(retry=RetryPolicy(attempts_max=1, losses_max=1)))
    for number in (1, 2, 3):
        lease = await start(jobs, queue)
        assert lease.attempt == number
        answer = await report(jobs, Snooze(lease, 60_000))
        assert (answer.state, answer.until_ms) == (JobState.SCHEDULED, clock.now_ms() + 60_000)
        await clock.advance(ms=59_999)
        assert await offer(jobs, queue) == []
        await clock.advance(ms=1)
    await finish(jobs, await start(jobs, queue))
    job = await jobs.job(job_id)
    assert (job.failures, job.losses, job.attempts) == (0, 0, 4)
    assert [attempt.outcome for attempt in job.history] == [AttemptOutcome.SNOOZED] * 3 + [AttemptOutcome.SUCCEEDED]
    assert await event_kinds(jobs, job_id) == ["job.snoozed"] * 3 + ["job.succeeded"]


async def test_a_released_job_is_due_at_once(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue, draft(retry=RetryPolicy(attempts_max=1, losses_max=1)))
    first = await start(jobs, queue)
    assert (await report(jobs, Release(first))).state is JobState.QUEUED
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}
    second = await start(jobs, queue, "other")
    assert (second.attempt, second.fence > first.fence) == (2, True)
    await finish(jobs, second)
    job = await jobs.job(job_id)
    assert (job.failures, job.losses) == (0, 0)
    assert [(attempt.worker, attempt.outcome) for attempt in job.history] == [
        ("worker-1", AttemptOutcome.RELEASED),
        ("other", AttemptOutcome.SUCCEEDED),
    ]
