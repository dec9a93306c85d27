"""An engine without background work, whose clock is moved by hand, gives effect to what is due when it is asked to."""

from __future__ import annotations

import pytest

from penstock.domain.job import Failure, JobState
from penstock.domain.job_errors import JobDoesNotExist
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import DAY_MS, HOUR_MS
from penstock.domain.operation import JobFilter, OperationState
from penstock.domain.retry import RetryPolicy
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Fail
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, accept, enqueue, finish, make_queue, poll


async def test_a_delayed_job_is_queued_at_its_instant(jobs: Jobs, clock: ManualClock) -> None:
    stored = await enqueue(jobs, delay_ms=DAY_MS)
    assert await jobs.catch_up() == (DAY_MS, None)
    await clock.advance(ms=DAY_MS - 1)
    assert await jobs.catch_up() == (1, None)
    await clock.advance(ms=1)
    assert await jobs.catch_up() == (None, None)
    assert (await jobs.looking.job(stored.job_id)).state is JobState.QUEUED


async def test_a_lease_that_lapsed_is_lost(jobs: Jobs, clock: ManualClock) -> None:
    queue = await make_queue(jobs, retry=RetryPolicy(losses_max=0))
    await enqueue(jobs)
    offer = await accept(jobs)
    lease_ms = queue.settings.lease_ms
    assert await jobs.catch_up() == (lease_ms, None)
    await clock.advance(ms=lease_ms)
    await jobs.catch_up()
    assert (await jobs.looking.job(offer.lease.job_id)).state is JobState.DEAD


async def test_a_schedule_fires_and_says_when_it_does_next(jobs: Jobs, clock: ManualClock) -> None:
    await jobs.schedules.save("hourly", QUEUE, JobRequest(task="tick"), cron="0 * * * *")
    due = await jobs.catch_up()
    assert due.job_in_ms is None
    assert due.schedule_in_ms == HOUR_MS - clock.now_ms() % HOUR_MS
    assert await poll(jobs) == []
    await clock.advance(ms=due.schedule_in_ms)
    assert await jobs.catch_up() == (None, HOUR_MS)
    [offer] = await poll(jobs)
    assert offer.task == "tick"


async def test_an_operation_goes_on_as_fast_as_it_may(jobs: Jobs, clock: ManualClock) -> None:
    for _ in range(3):
        await enqueue(jobs)
        offer = await accept(jobs)
        await jobs.reports.report(Fail(offer.lease, Failure(kind="Bug", permanent=True)))
    begun = await jobs.operations.requeue_dead(QUEUE, JobFilter(states=(JobState.DEAD,)), rate=1)
    moves = 0
    while (due := await jobs.catch_up()).job_in_ms is not None:
        await clock.advance(ms=due.job_in_ms)
        moves += 1
    assert (await jobs.operations.operation(begun.id)).state is OperationState.DONE
    assert moves >= 2, "one job a second"


async def test_finished_jobs_are_forgotten_after_their_retention(jobs: Jobs, clock: ManualClock) -> None:
    queue = await make_queue(jobs)
    await enqueue(jobs)
    job_id = await finish(jobs)
    await clock.advance(ms=queue.settings.retention_ms)
    await jobs.catch_up()
    with pytest.raises(JobDoesNotExist):
        await jobs.looking.job(job_id)
