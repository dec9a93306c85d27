"""Workers wait for jobs; and what was offered to one who is gone goes back, all of it, at no cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.domain.errors import OverLimit, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job import JobState, Offer
from penstock.domain.job_errors import JobInvalid, JobQueueDoesNotExist
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import Limits
from penstock.engine.jobs.jobs import Jobs
from penstock.engine.jobs.offering import STRETCH_FIRST
from penstock.store.job_port import Accept, Complete
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, Pause, accept, enqueue, make_queue, parked, poll
from tests.support.stores import Home

WAIT_MS = 30_000


async def test_a_poll_is_offered_what_there_is(jobs: Jobs) -> None:
    stored = [await enqueue(jobs, payload=b"[%d]" % number) for number in range(3)]
    offers = await poll(jobs, 2, wait_ms=WAIT_MS)
    assert [offer.lease.job_id for offer in offers] == [one.job_id for one in stored[:2]]
    assert [offer.payload for offer in offers] == [b"[0]", b"[1]"]


async def test_one_call_offers_only_so_much_payload(home: Home) -> None:
    limits = JobLimits(offered_bytes_max=10_000)
    jobs = (await home.engine(job_limits=limits, upkeep=True)).jobs
    payload = b'"%b"' % (b"x" * 998)
    await jobs.enqueueing.enqueue_batch([(QUEUE, JobRequest(task="greet", payload=payload))] * 60)
    # How large they are is not known at first.
    assert len(await poll(jobs, 60)) == STRETCH_FIRST
    assert len(await poll(jobs, 60)) == 10
    assert len(await poll(jobs, 3)) == 3
    waiting = asyncio.create_task(poll(jobs, 60, wait_ms=WAIT_MS))
    assert len(await waiting) == 10


async def test_many_small_jobs_are_offered_by_one_call(jobs: Jobs) -> None:
    await jobs.enqueueing.enqueue_batch([(QUEUE, JobRequest(task="greet"))] * 300)
    offers = await poll(jobs, 300)
    assert len({offer.lease.job_id for offer in offers}) == 300


async def test_what_was_offered_before_a_later_stretch_failed_goes_back(jobs: Jobs, failpoints: Failpoints) -> None:
    await jobs.enqueueing.enqueue_batch([(QUEUE, JobRequest(task="greet"))] * 30)

    def fail_next() -> None:
        failpoints.arm("jobs.offer.begun", fail)

    def fail() -> None:
        raise StoreUnavailable("The store is throttled.")

    failpoints.arm("jobs.offer.committed", fail_next)
    with pytest.raises(StoreUnavailable):
        await poll(jobs, 30)
    await jobs.settle()
    assert len(await poll(jobs, 30)) == 30


async def test_a_poll_waits_for_a_job(jobs: Jobs) -> None:
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    stored = await enqueue(jobs)
    [offer] = await waiting
    assert offer.lease.job_id == stored.job_id


async def test_a_poll_ends_empty_at_its_deadline(jobs: Jobs, clock: ManualClock) -> None:
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    await clock.advance(ms=WAIT_MS - 1)
    assert not waiting.done()
    await clock.advance(ms=1)
    assert await waiting == []


async def test_a_poll_waits_for_a_delay_to_be_over(jobs: Jobs, clock: ManualClock) -> None:
    await enqueue(jobs, delay_ms=5_000)
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    await clock.advance(ms=5_000)
    assert len(await waiting) == 1


async def test_a_poll_waits_for_a_delay_though_an_earlier_poll_took_what_came_with_it(
    jobs: Jobs, clock: ManualClock
) -> None:
    first = asyncio.create_task(poll(jobs, 2, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    second = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 2)
    now, later = JobRequest(task="greet"), JobRequest(task="greet", delay_ms=5_000)
    await jobs.enqueueing.enqueue_batch([(QUEUE, now), (QUEUE, later)])
    assert len(await first) == 1
    await parked(jobs, 1)
    await clock.advance(ms=5_000)
    assert len(await second) == 1


async def test_a_poll_of_several_queues_waits_for_all_of_them(jobs: Jobs) -> None:
    names = ["first", "second", "third"]
    for name in reversed(names):
        waiting = asyncio.create_task(jobs.offering.poll(names, count=2, wait_ms=WAIT_MS))
        await parked(jobs, 3)
        stored = await enqueue(jobs, queue=name)
        [offer] = await waiting
        assert (offer.lease.job_id, offer.queue) == (stored.job_id, name)
        assert jobs.long_polls == 0


async def test_no_queue_of_several_is_starved(jobs: Jobs) -> None:
    for name in ("first", "second"):
        for _ in range(4):
            await enqueue(jobs, queue=name)
    found = [await jobs.offering.poll(["first", "second"], count=1) for _ in range(4)]
    assert {offer.queue for [offer] in found} == {"first", "second"}


async def test_a_poll_that_has_enough_passes_on_the_word_of_another_queue(jobs: Jobs) -> None:
    busy = asyncio.create_task(jobs.offering.poll(["first", "second"], count=1, wait_ms=WAIT_MS))
    await parked(jobs, 2)
    other = asyncio.create_task(poll(jobs, queue="second", wait_ms=WAIT_MS))
    third = asyncio.create_task(poll(jobs, queue="first", wait_ms=WAIT_MS))
    await parked(jobs, 4)
    await asyncio.gather(enqueue(jobs, queue="first"), enqueue(jobs, queue="second"))
    [mine] = await busy
    if mine.queue == "first":
        [offer] = await other
        third.cancel()
    else:
        [offer] = await third
        other.cancel()
    assert offer.queue != mine.queue


async def test_polls_are_served_in_the_order_of_arrival(jobs: Jobs) -> None:
    waiting = []
    for number in range(3):
        waiting.append(asyncio.create_task(poll(jobs, wait_ms=WAIT_MS)))
        await parked(jobs, number + 1)
    for first in waiting:
        stored = await enqueue(jobs)
        [offer] = await first
        assert offer.lease.job_id == stored.job_id


async def test_a_paused_queue_offers_nothing_until_it_is_resumed(jobs: Jobs) -> None:
    stored = await enqueue(jobs)
    await jobs.queues.pause(QUEUE)
    assert await poll(jobs) == []
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    await jobs.queues.resume(QUEUE)
    [offer] = await waiting
    assert offer.lease.job_id == stored.job_id


async def test_a_poll_of_a_queue_that_is_deleted_ends(jobs: Jobs) -> None:
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    await jobs.queues.delete(QUEUE)
    with pytest.raises(JobQueueDoesNotExist):
        await waiting


async def test_polls_end_when_the_service_stops(jobs: Jobs) -> None:
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    assert not jobs.draining
    jobs.end_waits()
    assert await waiting == []
    assert jobs.draining


async def test_only_so_many_may_wait_for_one_queue(home: Home) -> None:
    jobs = (await home.engine(limits=Limits(waiters_per_queue_max=1))).jobs
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    with pytest.raises(OverLimit):
        await poll(jobs, wait_ms=WAIT_MS)
    waiting.cancel()


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 501}, {"wait_ms": 60_001}])
async def test_a_poll_asks_for_what_makes_sense(jobs: Jobs, wrong: dict[str, Any]) -> None:
    with pytest.raises(JobInvalid):
        await poll(jobs, **wrong)


# -- who is gone ----------------------------------------------------------------------------------


async def assert_back_at_no_cost(jobs: Jobs, job_ids: set[str]) -> None:
    """Assert that these jobs are offered again at once, with no attempt counted and no state left behind."""
    offers: list[Offer] = []
    while len(offers) < len(job_ids):
        # Giving back wakes whoever waits, and the clock stands still.
        found = await poll(jobs, len(job_ids) - len(offers), wait_ms=WAIT_MS)
        assert found
        offers += found
    assert {offer.lease.job_id for offer in offers} == job_ids
    assert {offer.lease.attempt for offer in offers} == {1}
    for offer in offers:
        await jobs.reports.report(Accept(offer.lease))
        await jobs.reports.report(Complete(offer.lease))
        job = await jobs.looking.job(offer.lease.job_id)
        assert (job.state, job.attempts, job.failures, job.losses) == (JobState.SUCCEEDED, 1, 0, 0)
    counts = await jobs.queues.counts(await jobs.queues.find(QUEUE))
    assert {state: number for state, number in counts.by_state.items() if number} == {JobState.SUCCEEDED: len(job_ids)}


@pytest.mark.parametrize("place", ["jobs.offer.begun", "jobs.offer.committed"])
@pytest.mark.parametrize("wait_ms", [0, WAIT_MS])
async def test_a_poll_that_is_cancelled_while_the_store_is_at_work_gives_all_its_offers_back(
    jobs: Jobs, failpoints: Failpoints, place: str, wait_ms: int
) -> None:
    stored = {(await enqueue(jobs)).job_id for _ in range(5)}
    pause = Pause(failpoints, place)
    leaving = asyncio.create_task(poll(jobs, 5, wait_ms=wait_ms))
    await pause.reached.wait()
    leaving.cancel()
    pause.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await assert_back_at_no_cost(jobs, stored)


async def test_offers_of_one_queue_go_back_if_the_look_at_the_next_fails(jobs: Jobs, failpoints: Failpoints) -> None:
    stored = {(await enqueue(jobs)).job_id for _ in range(3)}
    await make_queue(jobs, "other")

    def fail() -> None:
        raise StoreUnavailable("The store is throttled.")

    names = [QUEUE, "other"]
    # One of the two turns looks at the queue with jobs first.
    for _ in range(2):
        failpoints.arm("jobs.offer.begun", lambda: None)
        failpoints.arm("jobs.offer.begun", fail)
        with pytest.raises(StoreUnavailable):
            await jobs.offering.poll(names, count=10)
        assert not failpoints
        await jobs.settle()
    await assert_back_at_no_cost(jobs, stored)


async def test_offers_that_were_not_delivered_go_back_although_the_store_fails_first(
    jobs: Jobs, clock: ManualClock, failpoints: Failpoints
) -> None:
    stored = {(await enqueue(jobs)).job_id for _ in range(3)}
    offers = await poll(jobs, 3)
    failed = asyncio.Event()

    def fail() -> None:
        failed.set()
        raise StoreUnavailable("The store is throttled.")

    failpoints.arm("jobs.report.begun", fail)
    jobs.offering.give_back(offers)
    await failed.wait()
    await clock.advance(ms=100)
    await jobs.settle()
    await assert_back_at_no_cost(jobs, stored)


async def test_an_offer_that_was_accepted_after_all_is_not_taken_away(jobs: Jobs) -> None:
    await enqueue(jobs)
    offer = await accept(jobs)
    jobs.offering.give_back([offer])
    await jobs.settle()
    assert (await jobs.looking.job(offer.lease.job_id)).state is JobState.RUNNING


async def test_an_offer_that_nobody_accepts_goes_back_in_time(jobs: Jobs, clock: ManualClock) -> None:
    stored = await enqueue(jobs)
    await poll(jobs)
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS, worker="worker-2"))
    await parked(jobs, 1)
    await clock.advance(seconds=10)
    [offer] = await waiting
    assert (offer.lease.job_id, offer.lease.attempt, offer.losses) == (stored.job_id, 1, 0)
