"""Accepting: an offer becomes an attempt, once."""

from __future__ import annotations

import asyncio

import msgspec

from penstock.domain.job import AttemptOutcome, Failure, JobState, Lease
from penstock.domain.job_errors import JobDoesNotExist, JobError, JobStateConflict, LeaseLost
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import Accept, Complete, Fail, Heartbeat, JobStore, Release, Reported, Snooze
from penstock.testing import ManualClock
from tests.support.job_steps import counted, draft, enqueue, finish, offer, refused, report, start


async def test_accepting_twice_is_answered_twice(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    first = await report(jobs, Accept(one.lease))
    await clock.advance(seconds=1)
    again = await report(jobs, Accept(one.lease))
    # What is left of the lease is told as it is now.
    assert (first.lease_ms, again.lease_ms) == (30_000, 29_000)
    assert msgspec.structs.replace(again, lease_ms=30_000) == first
    [attempt] = (await jobs.job(one.lease.job_id)).history
    assert (attempt.outcome, attempt.started_at_ms) == (AttemptOutcome.RUNNING, clock.now_ms() - 1_000)


async def test_an_offer_can_be_accepted_to_its_end(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue, draft(), draft())
    first, second = await offer(jobs, queue)
    await clock.advance(ms=queue.settings.offer_ms - 1)
    await report(jobs, Accept(first.lease))
    await clock.advance(ms=1)
    assert isinstance(await refused(jobs, Accept(second.lease)), LeaseLost)
    assert await counted(jobs, queue) == {JobState.RUNNING: 1, JobState.QUEUED: 1}


async def test_one_of_many_who_accept_at_once_is_no_other(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    answers = await asyncio.gather(*(jobs.report([Accept(one.lease)]) for _ in range(10)))
    assert answers == [answers[0]] * 10
    assert len((await jobs.job(one.lease.job_id)).history) == 1


async def test_what_was_not_accepted_cannot_be_reported_on(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    before = await jobs.job(one.lease.job_id)
    failure = Failure(kind="x")
    for early in (Heartbeat(one.lease), Complete(one.lease), Fail(one.lease, failure), Snooze(one.lease, 1)):
        assert isinstance(await refused(jobs, early), JobStateConflict)
    assert await jobs.job(one.lease.job_id) == before
    await report(jobs, Accept(one.lease))


async def test_a_lease_on_no_job_is_told_apart(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    answers = await jobs.report([Accept(Lease("nobody", 1, 1)), Accept(one.lease)])
    assert isinstance(answers[0], JobDoesNotExist)
    assert isinstance(answers[1], Reported)


async def test_a_forged_lease_is_lost(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    before = await jobs.job(job_id)
    for forged in (
        Lease(job_id, 1, lease.fence + 1),
        Lease(job_id, 1, lease.fence - 1),
        Lease(job_id, 2, lease.fence),
        Lease(job_id, 0, lease.fence),
    ):
        for stale in (Accept(forged), Heartbeat(forged), Complete(forged), Release(forged)):
            assert isinstance(await refused(jobs, stale), LeaseLost)
    assert await jobs.job(job_id) == before
    await finish(jobs, lease)


async def test_the_reports_of_one_call_are_taken_in_in_order(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, draft(), draft())
    first, second = (one.lease for one in await offer(jobs, queue))
    answers = await jobs.report(
        [Accept(first), Complete(second), Complete(first), Complete(first), Heartbeat(first), Release(second)]
    )
    assert [answer.state if isinstance(answer, Reported) else type(answer) for answer in answers] == [
        JobState.RUNNING,
        JobStateConflict,
        JobState.SUCCEEDED,
        JobState.SUCCEEDED,
        LeaseLost,
        JobState.QUEUED,
    ]
    assert all(isinstance(answer, Reported | JobError) for answer in answers)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 1, JobState.QUEUED: 1}
