"""What happened to jobs is counted as it is committed, whoever brought it about."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Move
from penstock.domain.job_errors import JobInvalid
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.domain.schedule import Schedule
from penstock.store.job_port import ENQUEUED, FAILED_FOR_NOW, FAILED_PERMANENTLY, TIMED_OUT, JobStore, Release
from penstock.testing import ManualClock
from tests.support.job_steps import advance, draft, enqueue, fail, finish, make_queue, offer, report, start


async def test_the_steps_of_lives_are_counted(jobs: JobStore, queue: JobQueue) -> None:
    assert jobs.steps() == {}
    await enqueue(jobs, queue, *(draft() for _ in range(4)))
    await finish(jobs, await start(jobs, queue))
    await fail(jobs, await start(jobs, queue))
    await fail(jobs, await start(jobs, queue), permanent=True)
    [offered] = await offer(jobs, queue, 1)
    await report(jobs, Release(offered.lease))
    assert jobs.steps() == {
        ENQUEUED: 4,
        Move.OFFER: 4,
        Move.ACCEPT: 3,
        Move.COMPLETE: 1,
        FAILED_FOR_NOW: 1,
        Move.FAIL: 1,
        FAILED_PERMANENTLY: 1,
        Move.FAIL_FOR_GOOD: 1,
        Move.RETURN: 1,
    }


async def test_what_comes_due_by_itself_is_counted(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, lease_ms=1_000, retry=RetryPolicy(losses_max=2, backoff_ms=0, jitter=False))
    await enqueue(jobs, queue)
    for _ in range(2):
        await start(jobs, queue)
        await clock.advance(ms=1_001)
        await advance(jobs)
    await enqueue(jobs, queue, draft(timeout_ms=500))
    await start(jobs, queue)
    await clock.advance(ms=501)
    await advance(jobs)
    steps = jobs.steps()
    assert (steps[Move.LOSE], steps[Move.LOSE_FOR_GOOD], steps[TIMED_OUT], steps[Move.FAIL]) == (1, 1, 1, 1)


async def test_what_a_schedule_enqueues_is_counted(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await jobs.save_schedule(Schedule(name="hourly", queue=queue.name, draft=draft(), interval_ms=3_600_000))
    await clock.advance(seconds=3_600)
    await jobs.fire_schedules()
    assert jobs.steps() == {ENQUEUED: 1}


async def test_what_was_done_before_is_not_counted_again(jobs: JobStore, queue: JobQueue) -> None:
    one = draft()
    await enqueue(jobs, queue, one)
    await jobs.enqueue(queue, [one])
    lease = await start(jobs, queue)
    for _ in range(2):
        await finish(jobs, lease)
    assert jobs.steps() == {ENQUEUED: 1, Move.OFFER: 1, Move.ACCEPT: 1, Move.COMPLETE: 1}


def go_down() -> None:
    raise StoreUnavailable("down")


async def test_what_fails_is_not_counted(jobs: JobStore, queue: JobQueue, failpoints: Failpoints) -> None:
    failpoints.arm("jobs.enqueue.begun", go_down)
    with pytest.raises(StoreUnavailable):
        await jobs.enqueue(queue, [draft()])
    assert jobs.steps() == {}


async def test_a_call_beside_one_that_breaks_is_counted_once(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    _, broken = await asyncio.gather(jobs.cancel(job_id), jobs.job("\ud800"), return_exceptions=True)
    assert isinstance(broken, JobInvalid)
    assert jobs.steps() == {ENQUEUED: 1, Move.CANCEL: 1}
