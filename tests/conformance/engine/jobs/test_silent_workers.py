"""Workers that hang: each job loses one offer's time to them at most, and then goes to somebody else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from penstock.domain.job import Offer
from penstock.domain.job_errors import JobError, LeaseLost
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import Limits
from penstock.domain.retry import RetryPolicy
from penstock.engine.engine import Engine
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Accept, Complete, Heartbeat, NewEvent, Publish, Release, Report
from penstock.testing import CountedIds, ManualClock
from tests.support.job_service import QUEUE, enqueue, make_queue, parked, poll
from tests.support.job_streams import Reader, reader, turns
from tests.support.stores import Home, on_postgres

OFFER_MS = 10_000
LEASE_MS = 30_000
KEEP_ALIVE_MS = 15_000
WAIT_MS = 60_000


@pytest.fixture
async def jobs(engine: Engine) -> Jobs:
    await make_queue(engine.jobs, offer_ms=OFFER_MS, lease_ms=LEASE_MS, retry=RetryPolicy(backoff_ms=0))
    return engine.jobs


@pytest.fixture
async def other(home: Home, jobs: Jobs, clock: ManualClock, limits: Limits) -> AsyncIterator[Jobs]:
    """The jobs of another node, at work in the background too."""
    async with Engine(await home.open(), clock=clock, ids=CountedIds(), limits=limits) as engine:
        yield engine.jobs


def healthy_poll(jobs: Jobs, count: int = 1) -> asyncio.Task[list[Offer]]:
    return asyncio.create_task(poll(jobs, count, wait_ms=WAIT_MS, worker="healthy"))


async def enqueue_many(jobs: Jobs, count: int) -> set[str]:
    stored = await jobs.enqueueing.enqueue_batch([(QUEUE, JobRequest(task="greet"))] * count)
    return {one.job_id for one in stored if not isinstance(one, Exception)}


async def fall_silent(stream: Reader, clock: ManualClock) -> list[Offer]:
    """Let what a stream was offered lapse, and return it."""
    offers = await stream.next()
    waiting = stream.reading()
    await turns()
    await clock.advance(ms=OFFER_MS)
    assert await waiting == []
    assert stream.stream.held_back
    return offers


async def said(jobs: Jobs, report: Report) -> None:
    """Report, whatever is answered."""
    with contextlib.suppress(JobError):
        await jobs.reports.report(report)


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [1, 3, 20])
async def test_a_job_that_lapsed_from_a_silent_stream_goes_to_somebody_else(
    jobs: Jobs, clock: ManualClock, credit: int
) -> None:
    async with reader(jobs, credit) as hung:
        stored = await enqueue(jobs)
        await hung.next()
        hung.reading()  # It stays open, and if it has room it is the first in line.
        await parked(jobs, min(credit - 1, 1))
        healthy = healthy_poll(jobs)
        await parked(jobs, min(credit - 1, 1) + 1)
        await clock.advance(ms=OFFER_MS)
        [offer] = await healthy
        assert offer.lease.job_id == stored.job_id


async def test_all_jobs_of_a_silent_stream_lose_one_offers_time(jobs: Jobs, clock: ManualClock) -> None:
    stored = await enqueue_many(jobs, 30)
    began_ms = clock.now_ms()
    async with reader(jobs, 20) as hung:
        assert len(await hung.next()) == 20
        hung.reading()
        given = {offer.lease.job_id for offer in await poll(jobs, 30, worker="healthy")}
        assert len(given) == 10
        await clock.advance(ms=OFFER_MS)
        while given != stored:
            given |= {offer.lease.job_id for offer in await healthy_poll(jobs, 30)}
        assert clock.now_ms() == began_ms + OFFER_MS


async def test_a_silent_stream_gets_no_job_that_comes_later(jobs: Jobs, clock: ManualClock) -> None:
    await enqueue(jobs)
    async with reader(jobs, 20) as hung:
        await fall_silent(hung, clock)
        hung.reading()
        await turns()
        for _ in range(3):
            await enqueue(jobs)
            for offer in await healthy_poll(jobs, 2):
                await jobs.reports.report(Accept(offer.lease))
                await jobs.reports.report(Complete(offer.lease))
        assert hung.stream.taken == 0


async def test_what_was_offered_before_a_stream_fell_silent_lapses_by_itself(jobs: Jobs, clock: ManualClock) -> None:
    await enqueue(jobs)
    async with reader(jobs, 20) as hung:
        await hung.next()
        later = await enqueue(jobs)
        await clock.advance(ms=OFFER_MS - 1_000)
        await hung.next()
        waiting = hung.reading()
        await turns()
        await clock.advance(ms=1_000)
        assert await waiting == []
        [first] = await healthy_poll(jobs)
        hung.reading()
        await turns()
        await clock.advance(ms=OFFER_MS - 1_000)
        [second] = await healthy_poll(jobs)
        assert (second.lease.job_id, first.lease.job_id != later.job_id) == (later.job_id, True)


async def accept_late(jobs: Jobs, hung: Reader, lapsed: Offer, running: Offer) -> None:
    with pytest.raises(LeaseLost):
        await jobs.reports.report(Accept(lapsed.lease))


async def decline_late(jobs: Jobs, hung: Reader, lapsed: Offer, running: Offer) -> None:
    await said(jobs, Release(lapsed.lease))


async def complete(jobs: Jobs, hung: Reader, lapsed: Offer, running: Offer) -> None:
    await jobs.reports.report(Complete(running.lease))


async def send_heartbeat(jobs: Jobs, hung: Reader, lapsed: Offer, running: Offer) -> None:
    await jobs.reports.report(Heartbeat(running.lease))


async def publish(jobs: Jobs, hung: Reader, lapsed: Offer, running: Offer) -> None:
    await jobs.reports.publish(running.lease, "p-1", "progress", b"1")


async def publish_many(jobs: Jobs, hung: Reader, lapsed: Offer, running: Offer) -> None:
    await jobs.reports.report(Publish(running.lease, (NewEvent("p-1", "progress"), NewEvent("p-2", "progress"))))


async def give_credit(jobs: Jobs, hung: Reader, lapsed: Offer, running: Offer) -> None:
    hung.stream.add_credit(0)


Sign = Callable[[Jobs, Reader, Offer, Offer], Awaitable[None]]
SIGNS: list[Sign] = [accept_late, decline_late, complete, send_heartbeat, publish, publish_many, give_credit]


@pytest.mark.parametrize("sign", SIGNS)
async def test_a_stream_that_is_heard_from_is_offered_jobs_again(jobs: Jobs, clock: ManualClock, sign: Sign) -> None:
    stored = await enqueue_many(jobs, 2)
    async with reader(jobs, 2) as hung:
        running, lapsed = await hung.next()
        await jobs.reports.report(Accept(running.lease))
        waiting = hung.reading()
        await turns()
        await clock.advance(ms=OFFER_MS)
        assert await waiting == []
        waiting = hung.reading()
        await turns()
        assert not waiting.done()
        await sign(jobs, hung, lapsed, running)
        [again] = await waiting
        assert again.lease.job_id in stored - {running.lease.job_id}
        assert not hung.stream.held_back


@pytest.mark.parametrize("sign", [send_heartbeat, publish, publish_many])
async def test_after_a_mere_sign_of_life_one_job_is_offered_until_it_is_accepted(
    jobs: Jobs, clock: ManualClock, sign: Sign
) -> None:
    await enqueue_many(jobs, 5)
    async with reader(jobs, 5) as hung:
        running, *lapsed = await hung.next()
        await jobs.reports.report(Accept(running.lease))
        waiting = hung.reading()
        await turns()
        await clock.advance(ms=OFFER_MS)
        assert await waiting == []
        await sign(jobs, hung, lapsed[0], running)
        [tried] = await hung.next()
        waiting = hung.reading()
        await turns()
        for _ in range(2):
            assert len(await healthy_poll(jobs)) == 1
        assert not waiting.done()
        await jobs.reports.report(Accept(tried.lease))
        assert len(await waiting) == 1


async def test_a_worker_that_stops_in_the_middle_of_a_job_gets_no_other(jobs: Jobs, clock: ManualClock) -> None:
    stored = await enqueue(jobs)
    async with reader(jobs, 1) as hung:
        [offer] = await hung.next()
        await jobs.reports.report(Accept(offer.lease))
        hung.reading()
        await turns()
        healthy = healthy_poll(jobs)
        await parked(jobs, 1)
        await clock.advance(ms=LEASE_MS)
        [again] = await healthy
        assert (again.lease.job_id, again.losses) == (stored.job_id, 1)


async def test_an_attempt_that_takes_too_long_is_no_silence(jobs: Jobs, clock: ManualClock) -> None:
    await enqueue(jobs, timeout_ms=5_000)
    async with reader(jobs, 1) as stream:
        [offer] = await stream.next()
        await jobs.reports.report(Accept(offer.lease))
        waiting = stream.reading()
        await turns()
        await clock.advance(ms=5_000)
        [again] = await waiting
        assert (again.lease.job_id, again.failures) == (offer.lease.job_id, 1)


async def test_a_job_that_was_cancelled_while_it_was_offered_is_no_silence(jobs: Jobs, clock: ManualClock) -> None:
    first = await enqueue(jobs)
    async with reader(jobs, 1) as stream:
        await stream.next()
        await jobs.looking.cancel(first.job_id)
        second = await enqueue(jobs)
        waiting = stream.reading()
        await turns()
        await clock.advance(ms=OFFER_MS)
        [offer] = await waiting
        assert offer.lease.job_id == second.job_id


async def test_a_silence_is_logged_once(jobs: Jobs, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await enqueue_many(jobs, 2)
    async with reader(jobs, 3, worker="worker-7") as hung:
        await fall_silent(hung, clock)
        assert (jobs.streams.held_back, jobs.streams.silences) == (1, 1)
        for _ in range(2):
            waiting = hung.reading()
            await turns()
            await clock.advance(ms=KEEP_ALIVE_MS)
            assert await waiting == []
    [line] = [record.getMessage() for record in caplog.records if "lapse" in record.getMessage()]
    assert "worker-7" in line
    assert (jobs.streams.held_back, jobs.streams.silences) == (0, 1)


async def test_a_silent_stream_that_ends_leaves_nothing_behind(jobs: Jobs, clock: ManualClock) -> None:
    stored = await enqueue_many(jobs, 2)
    async with reader(jobs, 2) as hung:
        await fall_silent(hung, clock)
    await jobs.settle()
    assert not jobs.streams.holders
    assert {offer.lease.job_id for offer in await poll(jobs, 5)} == stored


@pytest.fixture
async def ahead(home: Home, clock: ManualClock, limits: Limits) -> tuple[Jobs, ManualClock]:
    """A node whose clock is behind the store's, and the store's clock."""
    store_clock = ManualClock(clock.now_ms() + 3_000)
    store = await home.open(clock=store_clock)
    jobs = Engine(store, clock=clock, ids=CountedIds(), limits=limits).jobs
    await make_queue(jobs, offer_ms=OFFER_MS)
    return jobs, store_clock


async def test_a_job_goes_to_somebody_else_though_the_stores_clock_is_ahead(
    ahead: tuple[Jobs, ManualClock], clock: ManualClock
) -> None:
    jobs, store_clock = ahead
    async with reader(jobs, 20) as hung:
        stored = await enqueue(jobs)
        await hung.next()
        hung.reading()
        await parked(jobs, 1)
        healthy = healthy_poll(jobs)
        await parked(jobs, 2)
        await store_clock.advance(ms=OFFER_MS)
        await clock.advance(ms=OFFER_MS)
        [offer] = await healthy
        assert offer.lease.job_id == stored.job_id
        assert hung.stream.held_back


async def test_a_stream_waits_for_the_stores_clock_where_that_is_behind(
    home: Home, clock: ManualClock, limits: Limits
) -> None:
    store_clock = ManualClock(clock.now_ms() - 3_000)
    jobs = Engine(await home.open(clock=store_clock), clock=clock, ids=CountedIds(), limits=limits).jobs
    await make_queue(jobs, offer_ms=OFFER_MS)
    await enqueue_many(jobs, 2)
    async with reader(jobs, 1) as stream:
        [offer] = await stream.next()
        waiting = stream.reading()
        await turns()
        await store_clock.advance(ms=OFFER_MS - 3_000)
        await clock.advance(ms=OFFER_MS - 3_000)
        await jobs.reports.report(Accept(offer.lease))
        await jobs.reports.report(Complete(offer.lease))
        assert len(await waiting) == 1
        assert jobs.streams.silences == 0


# -- streams, and several nodes -------------------------------------------------------------------


@on_postgres
async def test_a_stream_whose_worker_accepts_at_another_node_is_not_held_back(
    jobs: Jobs, other: Jobs, clock: ManualClock
) -> None:
    await enqueue_many(jobs, 2)
    async with reader(jobs, 1) as stream:
        [first] = await stream.next()
        await other.reports.report(Accept(first.lease))
        waiting = stream.reading()
        await turns()
        await clock.advance(ms=OFFER_MS)
        [second] = await waiting
        assert second.lease.job_id != first.lease.job_id
        await other.reports.report(Accept(second.lease))
        await other.reports.report(Complete(second.lease))
        await enqueue(jobs)
        waiting = stream.reading()
        await turns()
        await clock.advance(ms=OFFER_MS)
        assert len(await waiting) == 1
        assert jobs.streams.silences == 0


@on_postgres
@pytest.mark.parametrize("late", [Accept, Release])
async def test_a_late_report_to_another_node_wakes_the_stream(
    jobs: Jobs, other: Jobs, clock: ManualClock, late: type[Accept | Release]
) -> None:
    await enqueue(jobs)
    async with reader(jobs, 1) as hung:
        [lapsed] = await fall_silent(hung, clock)
        waiting = hung.reading()
        await turns()
        assert not waiting.done()
        # Notifications may be lost while a node begins to listen, and a worker may repeat a report.
        while not waiting.done():
            await said(other, late(lapsed.lease))
            await asyncio.wait([waiting], timeout=0.05)
        [again] = await waiting
        assert again.lease.job_id == lapsed.lease.job_id


@on_postgres
async def test_an_offer_that_is_declined_at_another_node_is_no_silence(jobs: Jobs, other: Jobs) -> None:
    stored = await enqueue(jobs)
    async with reader(jobs, 1) as stream:
        [offer] = await stream.next()
        waiting = stream.reading()
        while not waiting.done():
            await said(other, Release(offer.lease))
            await asyncio.wait([waiting], timeout=0.05)
        [again] = await waiting
        assert again.lease.job_id == stored.job_id
        assert jobs.streams.silences == 0


@on_postgres
@pytest.mark.parametrize("sign", [Heartbeat, Complete])
async def test_a_report_on_a_running_job_to_another_node_wakes_the_stream(
    jobs: Jobs, other: Jobs, clock: ManualClock, sign: type[Heartbeat | Complete]
) -> None:
    await enqueue_many(jobs, 2)
    async with reader(jobs, 2) as hung:
        running, lapsed = await hung.next()
        await other.reports.report(Accept(running.lease))
        waiting = hung.reading()
        await turns()
        await clock.advance(ms=OFFER_MS)
        assert await waiting == []
        assert hung.stream.held_back
        waiting = hung.reading()
        await turns()
        # One keep-alive without a sign changes nothing, however far the job has got.
        await clock.advance(ms=KEEP_ALIVE_MS)
        assert await waiting == []
        assert hung.stream.held_back
        await other.reports.report(sign(running.lease))
        waiting = hung.reading()
        await turns()
        await clock.advance(ms=KEEP_ALIVE_MS)
        offers = await waiting or await hung.next()
        assert [offer.lease.job_id for offer in offers] == [lapsed.lease.job_id]


@on_postgres
async def test_a_report_to_another_node_before_a_silence_does_not_end_it(
    jobs: Jobs, other: Jobs, clock: ManualClock
) -> None:
    await enqueue(jobs)
    async with reader(jobs, 1) as hung:
        [done] = await hung.next()
        await other.reports.report(Accept(done.lease))
        waiting = hung.reading()
        await turns()
        await clock.advance(ms=OFFER_MS)
        await enqueue(jobs)
        [lapsed] = await waiting
        assert lapsed.lease.job_id != done.lease.job_id
        await other.reports.report(Complete(done.lease))
        for ms in (OFFER_MS, KEEP_ALIVE_MS):
            waiting = hung.reading()
            await turns()
            await clock.advance(ms=ms)
            assert await waiting == []
            assert hung.stream.held_back


@on_postgres
async def test_a_silent_streams_job_goes_to_a_worker_of_another_node(
    jobs: Jobs, other: Jobs, clock: ManualClock
) -> None:
    stored = await enqueue(jobs)
    async with reader(jobs, 20) as hung:
        await hung.next()
        hung.reading()
        await parked(jobs, 1)
        healthy = healthy_poll(other)
        await parked(other, 1)
        await clock.advance(ms=OFFER_MS)
        [offer] = await healthy
        assert offer.lease.job_id == stored.job_id


# -- long polls -----------------------------------------------------------------------------------


async def test_a_worker_that_hangs_with_many_polls_open_keeps_a_job_once(jobs: Jobs, clock: ManualClock) -> None:
    hung = []
    for number in range(5):
        hung.append(asyncio.create_task(poll(jobs, wait_ms=WAIT_MS, worker="hung")))
        await parked(jobs, number + 1)
    stored = await enqueue(jobs)
    done, _ = await asyncio.wait(hung, return_when=asyncio.FIRST_COMPLETED)
    [first] = [offer for one in done for offer in one.result()]
    healthy = healthy_poll(jobs)
    await parked(jobs, 5)
    await clock.advance(ms=OFFER_MS)
    [offer] = await healthy
    assert offer.lease.job_id == first.lease.job_id == stored.job_id
    # They were told that there is nothing; one who is alive polls again, and is served.
    assert sum(map(len, await asyncio.gather(*hung))) == 1
    later = await enqueue(jobs)
    [offer] = await poll(jobs, wait_ms=WAIT_MS, worker="hung")
    assert offer.lease.job_id == later.job_id


async def test_a_poll_of_a_worker_that_hangs_passes_on_a_job_though_the_stores_clock_is_ahead(
    ahead: tuple[Jobs, ManualClock], clock: ManualClock
) -> None:
    jobs, store_clock = ahead
    hung = [asyncio.create_task(poll(jobs, wait_ms=WAIT_MS, worker="hung")) for _ in range(3)]
    await parked(jobs, 3)
    stored = await enqueue(jobs)
    await asyncio.wait(hung, return_when=asyncio.FIRST_COMPLETED)
    healthy = healthy_poll(jobs)
    await parked(jobs, 3)
    await store_clock.advance(ms=OFFER_MS)
    await clock.advance(ms=OFFER_MS)
    [offer] = await healthy
    assert offer.lease.job_id == stored.job_id
    jobs.end_waits()
    assert sum(map(len, await asyncio.gather(*hung))) == 1


async def test_a_worker_whose_offers_lapsed_is_served_when_it_polls_again(jobs: Jobs, clock: ManualClock) -> None:
    stored = await enqueue(jobs)
    for _ in range(3):
        [offer] = await poll(jobs, wait_ms=WAIT_MS)
        assert offer.lease.job_id == stored.job_id
        await clock.advance(ms=OFFER_MS)


async def test_a_poll_waits_on_though_an_answered_offer_to_its_worker_is_over(jobs: Jobs, clock: ManualClock) -> None:
    await enqueue_many(jobs, 3)
    accepted, declined, undelivered = await poll(jobs, 3)
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS))
    await parked(jobs, 1)
    await jobs.queues.pause(QUEUE)
    await jobs.reports.report(Accept(accepted.lease))
    await jobs.reports.report(Release(declined.lease))
    jobs.offering.give_back([undelivered])
    await jobs.settle()
    await clock.advance(ms=OFFER_MS)
    await jobs.queues.resume(QUEUE)
    [offer] = await waiting
    assert offer.lease.job_id in {declined.lease.job_id, undelivered.lease.job_id}


async def test_workers_without_a_name_are_not_taken_for_one(jobs: Jobs, clock: ManualClock) -> None:
    stored = await enqueue(jobs)
    await poll(jobs, worker="")
    waiting = asyncio.create_task(poll(jobs, wait_ms=WAIT_MS, worker=""))
    await parked(jobs, 1)
    await clock.advance(ms=OFFER_MS)
    [offer] = await waiting
    assert offer.lease.job_id == stored.job_id
