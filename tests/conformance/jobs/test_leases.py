"""Where leases stand: what a node asks that did not hear their reports itself."""

from __future__ import annotations

from penstock.domain.job import Failure, Lease
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import (
    Accept,
    Complete,
    Fail,
    Heartbeat,
    JobStore,
    LeaseState,
    LeaseStatus,
    Release,
    Report,
    Snooze,
)
from penstock.testing import ManualClock
from tests.support.job_steps import advance, draft, enqueue, offer, report, start


async def state(jobs: JobStore, lease: Lease) -> LeaseState:
    [status] = await jobs.leases([lease])
    return status.state


async def test_an_offer_is_open_until_it_lapses(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue)
    [offered] = await offer(jobs, queue)
    await clock.advance(ms=1_000)
    left_ms = queue.settings.offer_ms - 1_000
    assert await jobs.leases([offered.lease]) == [LeaseStatus(LeaseState.OFFERED, offered.accept_by_ms, left_ms)]
    await clock.advance(ms=left_ms)
    # Whether or not anybody has given effect to it, and whoever is offered the job next.
    assert await state(jobs, offered.lease) is LeaseState.LAPSED
    await advance(jobs)
    assert await state(jobs, offered.lease) is LeaseState.LAPSED
    [again] = await offer(jobs, queue)
    await report(jobs, Accept(again.lease))
    await report(jobs, Complete(again.lease))
    assert [status.state for status in await jobs.leases([offered.lease, again.lease])] == [
        LeaseState.LAPSED,
        LeaseState.REPORTED,
    ]


async def test_an_attempt_runs_until_its_lease_lapses(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    lease_ms = queue.settings.lease_ms
    await enqueue(jobs, queue)
    lease = await start(jobs, queue)
    until_ms = clock.now_ms() + lease_ms
    assert await jobs.leases([lease]) == [LeaseStatus(LeaseState.RUNNING, until_ms, lease_ms)]
    await clock.advance(ms=lease_ms - 1)
    await report(jobs, Heartbeat(lease))
    await clock.advance(ms=1)
    assert await jobs.leases([lease]) == [LeaseStatus(LeaseState.RUNNING, until_ms + lease_ms - 1, lease_ms - 1)]
    await clock.advance(ms=lease_ms)
    assert await state(jobs, lease) is LeaseState.LAPSED
    await advance(jobs)
    assert await state(jobs, lease) is LeaseState.LAPSED


async def test_what_a_worker_ended_was_reported(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, *(draft() for _ in range(4)))
    leases = [await start(jobs, queue) for _ in range(4)]
    first, second, third, fourth = leases
    reports: list[Report] = [Complete(first), Fail(second, Failure(kind="x")), Release(third), Snooze(fourth, 1_000)]
    for one in reports:
        await report(jobs, one)
    assert {status.state for status in await jobs.leases(leases)} == {LeaseState.REPORTED}


async def test_what_ended_in_another_way_is_over(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue, draft(timeout_ms=1_000))
    timed_out = await start(jobs, queue)
    [cancelled_id] = await enqueue(jobs, queue)
    [cancelled] = await offer(jobs, queue, 1)
    await jobs.cancel(cancelled_id)
    await clock.advance(ms=1_000)
    unknown = Lease("nobody", 1, 1)
    for _ in range(2):
        assert [status.state for status in await jobs.leases([unknown, timed_out, cancelled.lease])] == [
            LeaseState.OVER,
            LeaseState.OVER,
            LeaseState.OVER,
        ]
        await advance(jobs)
