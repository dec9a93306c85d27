"""Priorities age: a job waits behind later, more urgent ones for a bounded time."""

from __future__ import annotations

import msgspec
import pytest

from penstock.domain.job import PRIORITY_MAX, Lane
from penstock.domain.job_queue import JobQueue
from penstock.domain.limits import MINUTE_MS, SECOND_MS
from penstock.store.job_port import Accept, Complete, JobStore, Release, Snooze
from penstock.testing import ManualClock
from tests.support.job_steps import draft, enqueue, fail, make_queue, offer, offered_ids, report, start

AGING_MS = 10 * SECOND_MS


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    return await make_queue(jobs, aging_ms=AGING_MS)


async def complete_one(jobs: JobStore, queue: JobQueue) -> str:
    [one] = await offer(jobs, queue, 1)
    await report(jobs, Accept(one.lease))
    await report(jobs, Complete(one.lease))
    return one.lease.job_id


@pytest.mark.parametrize("lane", [None, Lane(key="narrow")])
async def test_a_patient_job_beside_a_stream_of_urgent_ones_runs_within_the_bound(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, lane: Lane | None
) -> None:
    """Each second one urgent job comes and one job is done, and there is always one urgent job more."""
    await enqueue(jobs, queue, *(draft(priority=PRIORITY_MAX, lane=lane) for _ in range(2)))
    [patient] = await enqueue(jobs, queue, draft(priority=0, lane=lane))
    bound_ms = PRIORITY_MAX * AGING_MS
    for waited_ms in range(0, 2 * bound_ms, SECOND_MS):
        if await complete_one(jobs, queue) == patient:
            # Those that came before the bound had to be done first.
            assert bound_ms <= waited_ms <= bound_ms + SECOND_MS
            return
        await clock.advance(ms=SECOND_MS)
        await enqueue(jobs, queue, draft(priority=PRIORITY_MAX, lane=lane))
    raise AssertionError("the patient job was never offered")


async def test_by_default_a_step_of_priority_is_worth_a_minute(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, "defaults")
    assert queue.settings.aging_ms == MINUTE_MS
    [older] = await enqueue(jobs, queue, draft(priority=4))
    await clock.advance(ms=MINUTE_MS - 1)
    [urgent] = await enqueue(jobs, queue, draft(priority=5))
    await clock.advance(ms=1)
    [as_old] = await enqueue(jobs, queue, draft(priority=5))
    assert await offered_ids(jobs, queue) == [urgent, older, as_old]


async def test_without_aging_the_longest_due_comes_first(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, "fifo", aging_ms=0)
    [first] = await enqueue(jobs, queue, draft(priority=0))
    await clock.advance(ms=1)
    [second] = await enqueue(jobs, queue, draft(priority=9))
    assert await offered_ids(jobs, queue) == [first, second]


async def test_a_delayed_job_waits_from_when_it_is_due(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [delayed] = await enqueue(jobs, queue, draft(delay_ms=5_000))
    await clock.advance(ms=4_999)
    [before] = await enqueue(jobs, queue)
    await clock.advance(ms=2)
    [after] = await enqueue(jobs, queue)
    assert await offered_ids(jobs, queue) == [before, delayed, after]


async def test_what_a_worker_gives_back_keeps_its_place(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    first, second = await enqueue(jobs, queue, draft(), draft())
    lease = await start(jobs, queue)
    [declined] = await offer(jobs, queue)
    await clock.advance(ms=1_000)
    await enqueue(jobs, queue)
    await report(jobs, Release(lease))
    await report(jobs, Release(declined.lease))
    assert await offered_ids(jobs, queue, 2) == [first, second]


async def test_what_is_snoozed_or_tried_again_waits_anew(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    snoozed, failed = await enqueue(jobs, queue, draft(), draft())
    lease = await start(jobs, queue)
    await fail(jobs, await start(jobs, queue))
    await report(jobs, Snooze(lease, 3_000))
    await clock.advance(ms=500)
    [between] = await enqueue(jobs, queue)
    await clock.advance(ms=3_000)
    assert await offered_ids(jobs, queue) == [between, failed, snoozed]


async def test_another_aging_counts_for_what_becomes_due_afterwards(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    [urgent] = await enqueue(jobs, queue, draft(priority=9))
    [delayed] = await enqueue(jobs, queue, draft(priority=9, delay_ms=2_000))
    saved = await jobs.save_queue(queue, settings=msgspec.structs.replace(queue.settings, aging_ms=0))
    assert saved is not None
    await clock.advance(ms=1_000)
    [plain] = await enqueue(jobs, saved, draft(priority=0))
    await clock.advance(ms=1_000)
    assert await offered_ids(jobs, saved) == [urgent, plain, delayed]
