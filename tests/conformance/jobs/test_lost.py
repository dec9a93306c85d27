"""Lost leases: a budget of their own, and nothing for those who had them."""

from __future__ import annotations

import pytest

from penstock.domain.job import AttemptOutcome, Failure, JobState, Lane
from penstock.domain.job_errors import LeaseLost
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Accept, Complete, Fail, Heartbeat, JobStore, Release, Snooze
from penstock.testing import ManualClock
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    event_kinds,
    fail,
    finish,
    group,
    refused,
    start,
    state_of,
)

LANES = [None, group("g"), Lane(key="k", width=2)]


async def test_a_lost_lease_is_no_failure(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue)
    await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    assert await jobs.advance() == 1_000
    job = await jobs.job(job_id)
    assert (job.state, job.failures, job.losses) == (JobState.RETRYING, 0, 1)
    assert job.failure is not None
    assert job.failure.kind == "lost"
    assert [attempt.outcome for attempt in job.history] == [AttemptOutcome.LOST]
    assert await event_kinds(jobs, job_id) == ["job.lost"]
    await clock.advance(seconds=1)
    await finish(jobs, await start(jobs, queue))


async def test_a_job_that_is_lost_too_often_is_dead(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    retry = RetryPolicy(attempts_max=2, losses_max=3, jitter=False)
    [job_id] = await enqueue(jobs, queue, draft(retry=retry))
    await fail(jobs, await start(jobs, queue))
    for losses in (1, 2, 3):
        await clock.advance(seconds=60)
        await start(jobs, queue)
        await clock.advance(ms=queue.settings.lease_ms)
        await advance(jobs)
        job = await jobs.job(job_id)
        assert (job.failures, job.losses) == (1, losses)
        assert job.state is (JobState.DEAD if losses == 3 else JobState.RETRYING)
    assert await counted(jobs, queue) == {JobState.DEAD: 1}


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("since", ["lapsed", "offered", "accepted", "succeeded"])
async def test_a_stale_lease_changes_nothing(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, lane: Lane | None, since: str
) -> None:
    [job_id] = await enqueue(jobs, queue, draft(lane=lane))
    stale = await start(jobs, queue, "old")
    await clock.advance(ms=queue.settings.lease_ms)
    await advance(jobs)
    await clock.advance(seconds=1)
    if since == "offered":
        await jobs.offer(queue, count=1, worker="new")
    elif since != "lapsed":
        lease = await start(jobs, queue, "new")
        if since == "succeeded":
            await finish(jobs, lease, b"1")
    else:
        await advance(jobs)
    before, events = await jobs.job(job_id), await jobs.events(job_id, limit=100)
    counts = await counted(jobs, queue)
    for late in (
        Accept(stale),
        Heartbeat(stale),
        Complete(stale, b"2"),
        Fail(stale, Failure(kind="x")),
        Release(stale),
        Snooze(stale, 1),
    ):
        assert isinstance(await refused(jobs, late), LeaseLost)
        with pytest.raises(LeaseLost):
            await jobs.publish(stale, "event", "progress", b"1")
    assert await jobs.job(job_id) == before
    assert await jobs.events(job_id, limit=100) == events
    assert await counted(jobs, queue) == counts


async def test_a_late_report_finds_the_lease_lapsed_before_anybody_looked(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    assert isinstance(await refused(jobs, Complete(lease)), LeaseLost)
    assert await state_of(jobs, job_id) is JobState.RETRYING
    assert (await jobs.job(job_id)).losses == 1
