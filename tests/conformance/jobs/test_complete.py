"""Completing: the life of a job that goes well."""

from __future__ import annotations

from penstock.domain.job import AttemptOutcome, JobState
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import Accept, Complete, JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import WORKER, counted, draft, enqueue, offer, report


async def test_a_job_is_offered_accepted_and_completed(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue, draft("mail", b'{"to":"b"}', tags=("x", "y"), correlation_id="c-1"))
    [offered] = await offer(jobs, queue)
    assert (offered.lease.job_id, offered.lease.attempt) == (job_id, 1)
    assert (offered.task, offered.payload, offered.tags) == ("mail", b'{"to":"b"}', ("x", "y"))
    assert offered.correlation_id == "c-1"
    accepted = await report(jobs, Accept(offered.lease))
    assert (accepted.state, accepted.attempt) == (JobState.RUNNING, 1)
    assert accepted.until_ms == clock.now_ms() + queue.settings.lease_ms
    await clock.advance(seconds=1)
    completed = await report(jobs, Complete(offered.lease, b"[1]"))
    assert (completed.state, completed.until_ms) == (JobState.SUCCEEDED, None)
    job = await jobs.job(job_id)
    assert (job.state, job.result, job.finished_at_ms) == (JobState.SUCCEEDED, b"[1]", clock.now_ms())
    assert (job.attempts, job.failures, job.losses, job.due_at_ms) == (1, 0, 0, None)
    [attempt] = job.history
    assert (attempt.number, attempt.worker, attempt.outcome) == (1, WORKER, AttemptOutcome.SUCCEEDED)
    assert attempt.ended_at_ms == clock.now_ms()
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 1}
