"""Circuit breakers: what fails again and again is left alone for a while."""

from __future__ import annotations

import msgspec
import pytest

from penstock.domain.job import JobState, Lane
from penstock.domain.job_queue import BreakerPolicy, JobQueue
from penstock.domain.limits import SECOND_MS
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import JobStore, Release
from penstock.testing import ManualClock
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    fail,
    finish,
    make_queue,
    offer,
    offered_ids,
    report,
    start,
)

OPEN_MS = 30 * SECOND_MS
SLOW = RetryPolicy(backoff_ms=3_600_000, jitter=False)


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    return await make_queue(jobs, breaker=BreakerPolicy(failures_max=3, open_ms=OPEN_MS, probes=2), retry=SLOW)


async def fail_one(jobs: JobStore, queue: JobQueue, *, permanent: bool = False) -> str:
    lease = await start(jobs, queue)
    await fail(jobs, lease, permanent=permanent)
    return lease.job_id


async def test_failures_in_a_row_open_the_queues_breaker(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue, *(draft() for _ in range(10)))
    for _ in range(3):
        await fail_one(jobs, queue)
    offers = await jobs.offer(queue, count=1, worker="w")
    assert (offers.offers, offers.next_in_ms) == ([], OPEN_MS)
    await clock.advance(ms=OPEN_MS - 1)
    assert await offer(jobs, queue) == []
    await clock.advance(ms=1)
    # As many as there are probes, and then none.
    probes = [one.lease for one in await offer(jobs, queue)]
    assert len(probes) == 2
    assert await offer(jobs, queue) == []
    await jobs.report([Release(lease) for lease in probes])


async def test_a_probe_that_succeeds_closes_it(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue, *(draft() for _ in range(10)))
    for _ in range(3):
        await fail_one(jobs, queue)
    await clock.advance(ms=OPEN_MS)
    await finish(jobs, await start(jobs, queue))
    assert len(await offer(jobs, queue)) == 6
    # And it takes as many failures as before to open it again.
    await enqueue(jobs, queue, *(draft() for _ in range(4)))
    for _ in range(2):
        await fail_one(jobs, queue)
    assert len(await offer(jobs, queue, 1)) == 1


async def test_a_probe_that_fails_opens_it_again(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await enqueue(jobs, queue, *(draft() for _ in range(10)))
    for _ in range(3):
        await fail_one(jobs, queue)
    await clock.advance(ms=OPEN_MS)
    await fail_one(jobs, queue)
    offers = await jobs.offer(queue, count=1, worker="w")
    assert (offers.offers, offers.next_in_ms) == ([], OPEN_MS)


async def test_a_probe_of_which_nobody_hears_does_not_hold_it_open(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await enqueue(jobs, queue, *(draft() for _ in range(10)))
    for _ in range(3):
        await fail_one(jobs, queue)
    await clock.advance(ms=OPEN_MS)
    assert len(await offer(jobs, queue)) == 2
    await clock.advance(ms=OPEN_MS)
    assert len(await offer(jobs, queue)) == 2


@pytest.mark.parametrize("lane", [None, Lane(key="k", width=10)])
async def test_fewer_probes_than_were_let_pass_do_not_hold_it_open(
    jobs: JobStore, clock: ManualClock, lane: Lane | None
) -> None:
    queue = await make_queue(jobs, breaker=BreakerPolicy(failures_max=3, open_ms=OPEN_MS, probes=4), retry=SLOW)
    await enqueue(jobs, queue, *(draft(lane=lane) for _ in range(10)))
    for _ in range(3):
        await fail_one(jobs, queue)
    await clock.advance(ms=OPEN_MS)
    assert len(await offer(jobs, queue, 3)) == 3
    fewer = msgspec.structs.replace(queue.settings, breaker=BreakerPolicy(failures_max=3, open_ms=OPEN_MS, probes=2))
    saved = await jobs.save_queue(queue, settings=fewer)
    assert saved is not None
    await clock.advance(ms=OPEN_MS)
    await advance(jobs)
    assert len(await offer(jobs, saved)) == 1
    assert await offer(jobs, saved) == []
    await clock.advance(ms=OPEN_MS)
    assert len(await offer(jobs, saved)) == 2


async def test_success_in_between_and_permanent_failures_do_not_count(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, *(draft() for _ in range(12)))
    for _ in range(3):
        for _ in range(2):
            await fail_one(jobs, queue)
        await fail_one(jobs, queue, permanent=True)
        await finish(jobs, await start(jobs, queue))
    assert await counted(jobs, queue) == {JobState.RETRYING: 6, JobState.DEAD: 3, JobState.SUCCEEDED: 3}


async def test_a_queue_without_a_breaker_goes_on(jobs: JobStore) -> None:
    queue = await make_queue(jobs, retry=SLOW)
    await enqueue(jobs, queue, *(draft() for _ in range(20)))
    for _ in range(20):
        await fail_one(jobs, queue)


async def open_key(jobs: JobStore, queue: JobQueue, width: int) -> list[str]:
    """Open the breaker of one key, and not the queue's: another key succeeds in between."""
    lane = Lane(key="down", width=width)
    ids = await enqueue(jobs, queue, *(draft(lane=lane) for _ in range(12)))
    for _ in range(3):
        await fail_one(jobs, queue)
        await enqueue(jobs, queue, draft(priority=9, lane=Lane(key="up")))
        await finish(jobs, await start(jobs, queue))
    return ids[3:]


async def test_a_key_has_a_breaker_of_its_own(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    left = await open_key(jobs, queue, 4)
    [other] = await enqueue(jobs, queue, draft(lane=Lane(key="up")))
    offers = await jobs.offer(queue, count=2, worker="w")
    assert (offers.offers, offers.next_in_ms) == ([], 0)
    assert await offered_ids(jobs, queue) == [other]
    offers = await jobs.offer(queue, count=2, worker="w")
    assert offers.offers == []
    await clock.advance(ms=OPEN_MS)
    await advance(jobs)
    lease, second = [one.lease for one in await offer(jobs, queue) if one.lease.job_id != other]
    assert [lease.job_id, second.job_id] == left[:2]
    await jobs.report([Release(second)])


async def test_what_was_held_up_goes_when_the_breaker_closes(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    left = await open_key(jobs, queue, 4)
    assert await offer(jobs, queue) == []
    await clock.advance(ms=OPEN_MS)
    lease = await start(jobs, queue)
    assert lease.job_id == left[0]
    # The probe that is left passes, the others are held up.
    [probe] = await offer(jobs, queue)
    assert await offer(jobs, queue) == []
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [left[2], left[3], left[4]]
    await report(jobs, Release(probe.lease))


async def test_what_is_held_up_can_be_cancelled(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    left = await open_key(jobs, queue, 1)
    assert await offer(jobs, queue) == []
    assert (await jobs.cancel(left[0])).state is JobState.CANCELLED
    assert await offer(jobs, queue) == []
    await clock.advance(ms=OPEN_MS)
    assert await offered_ids(jobs, queue) == [left[1]]
