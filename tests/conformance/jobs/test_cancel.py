"""Cancelling: at once, or when the worker lets go."""

from __future__ import annotations

import pytest

from penstock.domain.job import AttemptOutcome, Failure, JobState
from penstock.domain.job_errors import JobDoesNotExist, JobStateConflict, LeaseLost
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Accept, Complete, Fail, Heartbeat, JobStore, Release, Report, Snooze
from penstock.testing import ManualClock
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    event_kinds,
    fail,
    finish,
    offer,
    refused,
    report,
    start,
)


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.SCHEDULED, JobState.RETRYING, JobState.OFFERED])
async def test_what_does_not_run_is_cancelled_at_once(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, state: JobState
) -> None:
    [job_id] = await enqueue(jobs, queue, draft(delay_ms=10 * (state is JobState.SCHEDULED)))
    if state is JobState.RETRYING:
        await fail(jobs, await start(jobs, queue))
    offers = await offer(jobs, queue) if state is JobState.OFFERED else []
    assert (await jobs.job(job_id)).state is state
    job = await jobs.cancel(job_id)
    assert (job.state, job.finished_at_ms, job.due_at_ms) == (JobState.CANCELLED, clock.now_ms(), None)
    assert await jobs.job(job_id) == job
    for one in offers:
        assert isinstance(await refused(jobs, Accept(one.lease)), LeaseLost)
    await clock.advance(seconds=60)
    await advance(jobs)
    assert await offer(jobs, queue) == []
    assert await counted(jobs, queue) == {JobState.CANCELLED: 1}
    assert (await event_kinds(jobs, job_id))[-1] == "job.cancelled"
    # Said again, it is answered again.
    assert await jobs.cancel(job_id) == job


def ways_to_let_go() -> list[str]:
    return ["fail", "fail for good", "release", "snooze", "lose", "time out"]


@pytest.mark.parametrize("way", ways_to_let_go())
async def test_a_running_job_is_cancelled_when_its_worker_lets_go(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, way: str
) -> None:
    [job_id] = await enqueue(jobs, queue, draft(timeout_ms=1_000 if way == "time out" else None))
    lease = await start(jobs, queue)
    asked = await jobs.cancel(job_id)
    assert (asked.state, asked.cancel_requested) == (JobState.RUNNING, True)
    assert await jobs.cancel(job_id) == asked
    assert (await report(jobs, Heartbeat(lease))).cancel_requested
    ends: dict[str, Report] = {
        "fail": Fail(lease, Failure(kind="Stopped")),
        "fail for good": Fail(lease, Failure(kind="Stopped", permanent=True)),
        "release": Release(lease),
        "snooze": Snooze(lease, 1_000),
    }
    if way in ends:
        answer = await report(jobs, ends[way])
        assert (answer.state, answer.cancel_requested) == (JobState.CANCELLED, True)
        assert await report(jobs, ends[way]) == answer
    else:
        await clock.advance(ms=queue.settings.lease_ms)
        await advance(jobs)
    job = await jobs.job(job_id)
    assert (job.state, job.finished_at_ms) == (JobState.CANCELLED, clock.now_ms())
    assert [attempt.outcome for attempt in job.history] == [AttemptOutcome.CANCELLED]
    assert await counted(jobs, queue) == {JobState.CANCELLED: 1}
    assert await event_kinds(jobs, job_id) == ["job.cancel_requested", "job.cancelled"]
    assert isinstance(await refused(jobs, Heartbeat(lease)), LeaseLost)


async def test_success_comes_before_cancellation(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    await jobs.cancel(job_id)
    await finish(jobs, lease, b"1")
    job = await jobs.job(job_id)
    assert (job.state, job.result) == (JobState.SUCCEEDED, b"1")


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.DEAD])
async def test_what_is_finished_is_not_cancelled(jobs: JobStore, queue: JobQueue, state: JobState) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    await report(
        jobs, Complete(lease) if state is JobState.SUCCEEDED else Fail(lease, Failure(kind="x", permanent=True))
    )
    before = await jobs.job(job_id)
    with pytest.raises(JobStateConflict):
        await jobs.cancel(job_id)
    assert await jobs.job(job_id) == before


async def test_nobody_cancels_what_is_not_there(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(JobDoesNotExist):
        await jobs.cancel("nobody")


async def test_a_lost_job_is_cancelled_as_what_it_has_become(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    [job_id] = await enqueue(jobs, queue)
    await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    job = await jobs.cancel(job_id)
    assert (job.state, job.losses) == (JobState.CANCELLED, 1)
    assert [attempt.outcome for attempt in job.history] == [AttemptOutcome.LOST]


async def test_a_job_that_was_lost_for_good_is_dead_for_who_would_cancel_it_and_for_all(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    [job_id] = await enqueue(jobs, queue, draft(retry=RetryPolicy(losses_max=1)))
    await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    with pytest.raises(JobStateConflict, match="dead"):
        await jobs.cancel(job_id)
    job = await jobs.job(job_id)
    assert (job.state, job.losses, job.finished_at_ms) == (JobState.DEAD, 1, clock.now_ms())
    assert await counted(jobs, queue) == {JobState.DEAD: 1}
    assert await event_kinds(jobs, job_id) == ["job.dead"]
