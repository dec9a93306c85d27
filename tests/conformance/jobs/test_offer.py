"""Offers: what is shown to a worker, in which order, and when."""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import JobState
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import BreakerPolicy, JobQueue
from penstock.domain.limits import SECOND_MS
from penstock.store.job_port import Accept, JobStore, Offers, Release
from penstock.store.jobs import offering
from penstock.store.jobs.store import ScriptedJobs
from penstock.store.jobs.surroundings import Surroundings
from penstock.testing import CountedIds, ManualClock
from tests.support.job_steps import (
    WORKER,
    advance,
    counted,
    draft,
    enqueue,
    fail,
    make_queue,
    offer,
    offered_ids,
    refused,
    report,
    start,
    state_of,
)
from tests.support.stores import Home


async def test_the_more_urgent_come_first_then_the_older(jobs: JobStore, queue: JobQueue) -> None:
    low, high, middle, high_too = await enqueue(jobs, queue, *(draft(priority=priority) for priority in (0, 9, 4, 9)))
    assert await offered_ids(jobs, queue, 3) == [high, high_too, middle]
    assert await offered_ids(jobs, queue, 3) == [low]


async def test_an_offer_is_for_one_worker_for_seconds(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue)
    [one] = await offer(jobs, queue, worker="w1")
    assert one.accept_by_ms == clock.now_ms() + queue.settings.offer_ms
    assert one.timeout_ms == queue.settings.timeout_ms
    job = await jobs.job(job_id)
    assert (job.state, job.worker, job.due_at_ms) == (JobState.OFFERED, "w1", one.accept_by_ms)
    again = await jobs.offer(queue, count=1, worker="w2")
    assert (again.offers, again.next_in_ms) == ([], queue.settings.offer_ms)
    await clock.advance(ms=queue.settings.offer_ms - 1)
    assert await offer(jobs, queue) == []
    await clock.advance(ms=1)
    [second] = await offer(jobs, queue, worker="w2")
    assert second.lease.fence > one.lease.fence
    # It cost no attempt.
    assert (second.lease.attempt, second.failures, second.losses) == (1, 0, 0)
    await refused(jobs, Accept(one.lease))
    await report(jobs, Accept(second.lease))
    assert (await jobs.job(job_id)).worker == "w2"


async def test_advance_ends_offers(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    ids = await enqueue(jobs, queue, *(draft() for _ in range(5)))
    assert await offered_ids(jobs, queue) == ids
    assert await jobs.advance() == queue.settings.offer_ms
    await clock.advance(ms=queue.settings.offer_ms)
    assert await jobs.advance() is None
    assert await counted(jobs, queue) == {JobState.QUEUED: 5}
    assert (await jobs.job(ids[0])).worker == ""


async def test_advance_does_a_bounded_amount_at_a_time(jobs: JobStore, clock: ManualClock) -> None:
    queues = [await make_queue(jobs, f"q{number}") for number in range(3)]
    for queue in queues:
        await enqueue(jobs, queue, *(draft(delay_ms=1_000) for _ in range(300)))
    await enqueue(jobs, queues[1], draft(delay_ms=5_000))
    await clock.advance(seconds=1)
    assert await jobs.advance() == 0
    due = sum([(await counted(jobs, queue)).get(JobState.QUEUED, 0) for queue in queues])
    assert due == 500
    assert await jobs.advance() == 4_000
    assert [await counted(jobs, queue) for queue in (queues[0], queues[2])] == [{JobState.QUEUED: 300}] * 2


async def test_an_offer_sees_to_more_than_one_call_takes_care_of(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    for _ in range(3):
        await enqueue(jobs, queue, *(draft(delay_ms=1_000) for _ in range(250)))
    await clock.advance(seconds=1)
    seen: set[str] = set()
    while (
        offers := await jobs.offer(queue, count=100, worker="w")
    ).offers or offers.next_in_ms != queue.settings.offer_ms:
        seen.update(one.lease.job_id for one in offers.offers)
    assert len(seen) == 750


async def test_a_declined_offer_is_due_at_once(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, draft(), draft())
    offers = await offer(jobs, queue)
    answers = await jobs.report([Release(one.lease) for one in offers])
    assert [getattr(answer, "state", answer) for answer in answers] == [JobState.QUEUED] * 2
    assert await offered_ids(jobs, queue) == ids


async def test_nothing_comes_from_a_paused_queue(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    paused = await jobs.save_queue(queue, paused=True)
    assert paused is not None
    # Not even where the queue is still thought to run.
    assert await offer(jobs, queue) == []
    assert await jobs.save_queue(paused, paused=False) is not None
    assert await offered_ids(jobs, queue) == [job_id]


async def test_an_empty_queue_waits_for_nothing(jobs: JobStore, queue: JobQueue) -> None:
    offers = await jobs.offer(queue, count=5, worker="w")
    assert (offers.offers, offers.next_in_ms) == ([], None)
    assert await jobs.advance() is None


async def test_those_who_wait_hear_of_what_becomes_ready(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    heard: asyncio.Queue[int] = asyncio.Queue()

    def ready(queue_id: int, count: int) -> None:
        assert count > 0
        heard.put_nowait(queue_id)

    jobs.listen(ready, lambda _: None)
    async with asyncio.timeout(30):
        await enqueue(jobs, queue)
        assert await heard.get() == queue.id
        [one] = await offer(jobs, queue)
        await report(jobs, Release(one.lease))
        assert await heard.get() == queue.id
        await offer(jobs, queue)
        await clock.advance(ms=queue.settings.offer_ms)
        await advance(jobs)
        assert await heard.get() == queue.id
        # Sooner than they were told.
        await enqueue(jobs, queue, draft(delay_ms=SECOND_MS))
        assert await heard.get() == queue.id


async def test_a_cancelled_call_takes_all_its_offers_back(
    home: Home, jobs: JobStore, queue: JobQueue, failpoints: Failpoints
) -> None:
    ids = await enqueue(jobs, queue, *(draft() for _ in range(5)))
    released = asyncio.Event()

    def leave() -> None:
        call.cancel()

    failpoints.arm("jobs.offer.committed", leave)
    failpoints.arm("jobs.report.committed", released.set)
    call = asyncio.create_task(jobs.offer(queue, count=3, worker="w"))
    await asyncio.wait([call])
    assert call.cancelled()
    async with asyncio.timeout(30):
        await released.wait()
    assert await counted(jobs, queue) == {JobState.QUEUED: 5}
    assert await offered_ids(jobs, queue) == ids
    assert [(await jobs.job(job_id)).attempts for job_id in ids] == [0] * 5


async def test_a_store_that_closes_waits_for_offers_to_be_taken_back(
    home: Home, jobs: JobStore, queue: JobQueue, failpoints: Failpoints
) -> None:
    [job_id] = await enqueue(jobs, queue)

    def leave() -> None:
        call.cancel()

    failpoints.arm("jobs.offer.committed", leave)
    call = asyncio.create_task(jobs.offer(queue, count=3, worker="w"))
    await asyncio.wait([call])
    await home.close()
    assert await state_of((await home.open()).jobs, job_id) is JobState.QUEUED


async def made(jobs: JobStore, queue: JobQueue, count: int) -> Offers:
    """Have jobs offered as for several callers at once: those who get none go by what is told beside the offers."""
    assert isinstance(jobs, ScriptedJobs)
    turn = offering.Turn(queue, count, WORKER, "")
    around = Surroundings(CountedIds(), JobLimits(), lambda: 0.5)
    return await jobs._runner.run("offer", partial(offering.offer, around=around, turn=turn))  # noqa: SLF001 - calls are gathered by chance


async def test_who_gets_none_beside_others_is_told_of_what_comes_due(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, draft(), draft(delay_ms=700))
    offers = await made(jobs, queue, 2)
    assert (len(offers.offers), offers.next_in_ms) == (1, 700)


async def test_who_gets_none_beside_others_is_told_of_tenants_that_were_not_looked_at(
    jobs: JobStore, queue: JobQueue
) -> None:
    await enqueue(jobs, queue, *(draft(tenant=f"t{number}") for number in range(offering.TENANTS_MAX + 1)))
    offers = await made(jobs, queue, offering.TENANTS_MAX + 1)
    assert (len(offers.offers), offers.next_in_ms) == (offering.TENANTS_MAX, 0)


async def test_who_gets_none_beside_probes_is_told_when_the_breaker_lets_more_pass(
    jobs: JobStore, clock: ManualClock
) -> None:
    queue = await make_queue(jobs, "frail", breaker=BreakerPolicy(failures_max=1, open_ms=5_000, probes=2))
    await enqueue(jobs, queue, *(draft() for _ in range(5)))
    await fail(jobs, await start(jobs, queue), retry_after_ms=60_000)
    await clock.advance(ms=5_000)
    offers = await made(jobs, queue, 4)
    assert (len(offers.offers), offers.next_in_ms) == (2, 5_000)
