"""Heartbeats: a lease lasts while its worker is alive, but no longer than an attempt may."""

from __future__ import annotations

from penstock.domain.job import JobState
from penstock.domain.job_errors import LeaseLost
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import Heartbeat, JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import draft, enqueue, finish, make_queue, refused, report, start, state_of


async def test_a_heartbeat_extends_the_lease(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    for _ in range(5):
        await clock.advance(ms=queue.settings.lease_ms - 1)
        answer = await report(jobs, Heartbeat(lease))
        assert (answer.state, answer.until_ms) == (JobState.RUNNING, clock.now_ms() + queue.settings.lease_ms)
        assert not answer.cancel_requested
    await finish(jobs, lease)


async def test_a_lease_lapses_at_its_end(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    assert isinstance(await refused(jobs, Heartbeat(lease)), LeaseLost)
    assert await state_of(jobs, job_id) is JobState.RETRYING


async def test_heartbeats_do_not_put_off_the_timeout(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, lease_ms=10_000, timeout_ms=60_000)
    [job_id] = await enqueue(jobs, queue, draft(timeout_ms=15_000))
    lease = await start(jobs, queue)
    start_ms = clock.now_ms()
    await clock.advance(ms=9_000)
    assert (await report(jobs, Heartbeat(lease))).until_ms == start_ms + 15_000
    await clock.advance(ms=6_000)
    assert isinstance(await refused(jobs, Heartbeat(lease)), LeaseLost)
    assert (await jobs.job(job_id)).failures == 1


async def test_a_heartbeat_carries_the_wish_to_cancel(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    await jobs.cancel(job_id)
    answer = await report(jobs, Heartbeat(lease))
    assert (answer.state, answer.cancel_requested) == (JobState.RUNNING, True)
