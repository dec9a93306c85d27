"""What happens by itself: leases lapse, schedules fire, operations go on, and finished jobs are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from penstock.domain.gather import ErrorPolicy
from penstock.domain.job import EXPIRED, Failure, JobState
from penstock.domain.job_errors import JobDoesNotExist, JobQueueChanged, JobQueueExists, ScheduleInvalid
from penstock.domain.job_queue import JobQueueSettings
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import REPEAT_WINDOW_MS
from penstock.domain.operation import JobFilter, OperationState
from penstock.domain.retry import RetryPolicy
from penstock.engine.engine import Engine
from penstock.engine.jobs.gathers import GatherJob, GatherRequest
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Fail
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, accept, enqueue, finish, make_queue, parked, poll
from tests.support.stores import working

DEAD = JobFilter(states=(JobState.DEAD,))


@pytest.fixture
async def jobs(engine: Engine) -> AsyncIterator[Jobs]:
    """A service whose background work goes on."""
    async with working(engine) as at_work:
        yield at_work.jobs


async def until_state(jobs: Jobs, clock: ManualClock, job_id: str, state: JobState) -> None:
    """Move the clock until a job is in a state."""
    while (await jobs.looking.job(job_id)).state is not state:
        await clock.advance(seconds=1)


async def test_a_lease_that_lapses_is_noticed_though_nobody_asks(jobs: Jobs, clock: ManualClock) -> None:
    await make_queue(jobs, retry=RetryPolicy(losses_max=0))
    await enqueue(jobs)
    offer = await accept(jobs)
    await until_state(jobs, clock, offer.lease.job_id, JobState.DEAD)


async def test_who_waits_for_a_job_hears_at_once_that_it_expired(jobs: Jobs, clock: ManualClock) -> None:
    job_id = (await enqueue(jobs, expires_in_ms=500)).job_id
    waiting = asyncio.create_task(jobs.looking.result(job_id, wait_ms=30_000))
    await clock.advance(ms=500)
    job = await waiting
    assert job.failure is not None
    assert (job.state, job.failure.kind, job.finished_at_ms) == (JobState.CANCELLED, EXPIRED, clock.now_ms())


async def test_a_member_that_expires_lets_its_gather_go_on_at_once(jobs: Jobs, clock: ManualClock) -> None:
    member = GatherJob(QUEUE, JobRequest(task="count", expires_in_ms=500))
    then = GatherJob("reports", JobRequest(task="sum"))
    asked = GatherRequest(then=(then,), on_error=ErrorPolicy.COLLECT, expires_in_ms=60_000)
    await jobs.gathers.open(asked, {0: member}, seal=True)
    polling = asyncio.create_task(poll(jobs, queue="reports", wait_ms=30_000))
    await parked(jobs, 1)
    await clock.advance(ms=500)
    [offer] = await polling
    assert (offer.task, offer.enqueued_at_ms) == ("sum", clock.now_ms())


async def test_a_schedule_fires(jobs: Jobs, clock: ManualClock) -> None:
    saved = await jobs.schedules.save("minutely", QUEUE, JobRequest(task="tick"), cron="* * * * *")
    assert saved.next_at_ms is not None
    await clock.advance(ms=saved.next_at_ms - clock.now_ms())
    [offer] = await poll(jobs, wait_ms=60_000)
    assert offer.task == "tick"
    assert (await jobs.schedules.find("minutely")).last_job_id == offer.lease.job_id


async def test_a_schedule_that_makes_no_sense_is_refused(jobs: Jobs) -> None:
    for wrong in ({}, {"cron": "nonsense"}, {"cron": "* * * * *", "zone": "Nowhere/There"}, {"interval_ms": 1}):
        with pytest.raises(ScheduleInvalid):
            await jobs.schedules.save("wrong", QUEUE, JobRequest(task="tick"), **wrong)
    assert (await jobs.schedules.list_schedules()).schedules == []


async def die(jobs: Jobs, count: int) -> None:
    for _ in range(count):
        await enqueue(jobs)
        offer = await accept(jobs)
        await jobs.reports.report(Fail(offer.lease, Failure(kind="Bug", permanent=True)))


async def test_dead_jobs_are_queued_again_as_an_operation(jobs: Jobs, clock: ManualClock) -> None:
    await die(jobs, 3)
    assert await jobs.operations.count(QUEUE, DEAD) == (3, False)
    [group] = await jobs.operations.dead_groups(QUEUE)
    assert (group.kind, group.count) == ("Bug", 3)
    operation = await jobs.operations.requeue_dead(QUEUE, DEAD)
    while operation.state is OperationState.RUNNING:
        await clock.advance(seconds=1)
        operation = await jobs.operations.operation(operation.id)
    assert operation.done == 3
    assert len(await poll(jobs, 5)) == 3
    assert [one.id for one in await jobs.operations.operations(QUEUE)] == [operation.id]


async def test_waiting_jobs_are_purged_as_an_operation(jobs: Jobs, clock: ManualClock) -> None:
    for _ in range(3):
        await enqueue(jobs)
    running = await accept(jobs)
    operation = await jobs.operations.purge(QUEUE, JobFilter(states=(JobState.QUEUED,)))
    while operation.state is OperationState.RUNNING:
        await clock.advance(seconds=1)
        operation = await jobs.operations.operation(operation.id)
    assert operation.done == 2
    assert (await jobs.looking.job(running.lease.job_id)).state is JobState.RUNNING


async def test_finished_jobs_are_forgotten_after_their_retention(jobs: Jobs, clock: ManualClock) -> None:
    await make_queue(jobs, retention_ms=REPEAT_WINDOW_MS)
    await enqueue(jobs)
    job_id = await finish(jobs)
    assert (await jobs.looking.job(job_id)).state is JobState.SUCCEEDED
    with pytest.raises(JobDoesNotExist):
        await until_state(jobs, clock, job_id, JobState.DEAD)


def deeper(settings: JobQueueSettings) -> JobQueueSettings:
    return msgspec.structs.replace(settings, depth_max=settings.depth_max + 1)


async def test_settings_are_changed_by_whoever_saw_them_last(jobs: Jobs) -> None:
    queue = await make_queue(jobs, depth_max=5)
    with pytest.raises(JobQueueExists):
        await make_queue(jobs, depth_max=6)
    changed = await jobs.queues.change(QUEUE, deeper, queue.revision)
    assert (changed.settings.depth_max, changed.revision) == (6, queue.revision + 1)
    with pytest.raises(JobQueueChanged):
        await jobs.queues.change(QUEUE, deeper, queue.revision)
    assert (await jobs.queues.change(QUEUE, deeper)).settings.depth_max == 7
