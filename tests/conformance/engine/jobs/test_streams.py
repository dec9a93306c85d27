"""Streams of offers: as many jobs as there is credit, and everything back that was not accepted."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.errors import OverLimit
from penstock.domain.job import Failure, JobState
from penstock.domain.job_errors import JobInvalid, StreamDoesNotExist
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_request import JobRequest
from penstock.domain.retry import RetryPolicy
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Accept, Complete, Fail, Heartbeat, Release
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, enqueue, make_queue, parked, poll
from tests.support.job_streams import reader, turns
from tests.support.stores import Home

KEEP_ALIVE_MS = 15_000


async def test_a_stream_offers_no_more_than_its_credit(jobs: Jobs) -> None:
    for _ in range(5):
        await enqueue(jobs)
    async with reader(jobs, 3) as stream:
        assert len(await stream.next()) == 3
        assert (stream.stream.credit, stream.stream.taken) == (3, 3)
        more = stream.reading()
        await turns()
        assert not more.done()


async def test_a_slot_is_free_again_once_its_job_is_done_with(jobs: Jobs) -> None:
    await make_queue(jobs, retry=RetryPolicy(backoff_ms=0))
    for _ in range(4):
        await enqueue(jobs)
    async with reader(jobs, 1) as stream:
        [first] = await stream.next()
        await jobs.reports.report(Accept(first.lease))
        await jobs.reports.report(Heartbeat(first.lease))
        assert stream.stream.taken == 1
        await jobs.reports.report(Complete(first.lease))
        [second] = await stream.next()
        await jobs.reports.report(Accept(second.lease))
        await jobs.reports.report(Fail(second.lease, Failure(kind="Bug", permanent=True)))
        [third] = await stream.next()
        await jobs.reports.report(Release(third.lease))
        [again] = await stream.next()
        assert again.lease.job_id == third.lease.job_id


async def test_the_slot_of_a_lease_that_lapsed_is_free_again(jobs: Jobs, clock: ManualClock) -> None:
    await make_queue(jobs, offer_ms=5_000, lease_ms=10_000, retry=RetryPolicy(backoff_ms=0))
    stored = {(await enqueue(jobs)).job_id for _ in range(2)}
    async with reader(jobs, 1) as stream:
        [unaccepted] = await stream.next()
        waiting = stream.reading()
        await turns()
        await clock.advance(ms=5_000)
        assert await waiting == []
        assert stream.stream.taken == 0
        stream.stream.add_credit(0)
        [accepted] = await stream.next()
        assert {unaccepted.lease.job_id, accepted.lease.job_id} <= stored
        await jobs.reports.report(Accept(accepted.lease))
        waiting = stream.reading()
        await turns()
        await clock.advance(ms=9_999)
        assert not waiting.done()
        await clock.advance(ms=1)
        assert await waiting == []
        assert stream.stream.taken == 0


@pytest.mark.parametrize("ends_by", ["its timeout", "its lease"])
async def test_a_lease_that_ends_sooner_than_its_offer_would_have_frees_its_slot_then(
    jobs: Jobs, clock: ManualClock, ends_by: str
) -> None:
    """The stream waits for the end of the offer already when the worker accepts it."""
    lease_ms = 2_000 if ends_by == "its lease" else 60_000
    await make_queue(jobs, offer_ms=60_000, lease_ms=lease_ms, retry=RetryPolicy(backoff_ms=0))
    await enqueue(jobs, timeout_ms=2_000 if ends_by == "its timeout" else 60_000)
    async with reader(jobs, 1) as stream:
        [first] = await stream.next()
        waiting = stream.reading()
        await turns()
        await jobs.reports.report(Accept(first.lease))
        await turns()
        await clock.advance(ms=1_999)
        assert not waiting.done()
        await clock.advance(ms=1)
        async with asyncio.timeout(20):
            offers = await waiting
        if ends_by == "its lease":
            assert offers == []
            assert stream.stream.held_back
        else:
            # That time is up is no silence.
            [second] = offers
            assert (second.lease.job_id, second.lease.attempt) == (first.lease.job_id, 2)


async def test_credit_can_be_added_while_the_stream_waits(jobs: Jobs) -> None:
    for _ in range(3):
        await enqueue(jobs)
    async with reader(jobs, 1) as stream:
        await stream.next()
        waiting = stream.reading()
        await turns()
        jobs.streams.find(stream.stream.name).add_credit(2)
        assert len(await waiting) == 2
        with pytest.raises(JobInvalid):
            stream.stream.add_credit(500)


async def test_credit_that_is_taken_away_while_the_stream_waits_counts_at_once(jobs: Jobs) -> None:
    async with reader(jobs, 3) as stream:
        waiting = stream.reading()
        await parked(jobs, 1)
        stream.stream.add_credit(-2)
        await jobs.enqueueing.enqueue_batch([(QUEUE, JobRequest(task="greet"))] * 3)
        assert len(await waiting) == 1
        assert stream.stream.taken == 1
        await jobs.settle()
        back = await poll(jobs, 3)
        assert [offer.lease.attempt for offer in back] == [1, 1]


async def test_a_stream_without_credit_offers_nothing_to_a_worker_that_waits(jobs: Jobs) -> None:
    async with reader(jobs, 1) as stream:
        waiting = stream.reading()
        await parked(jobs, 1)
        stream.stream.add_credit(-1)
        await enqueue(jobs)
        [offer] = await poll(jobs, wait_ms=KEEP_ALIVE_MS)  # The clock stands still: it waits until the job is back.
        assert offer.lease.attempt == 1
        assert not waiting.done()


async def test_a_stream_of_a_worker_without_a_proper_name_is_not_opened(jobs: Jobs) -> None:
    with pytest.raises(JobInvalid):
        jobs.streams.open([QUEUE], credit=1, worker="\0")
    assert len(jobs.streams) == 0


async def test_a_stream_gives_signs_of_life(jobs: Jobs, clock: ManualClock) -> None:
    await enqueue(jobs)
    async with reader(jobs, 1) as stream:
        [offer] = await stream.next()
        await jobs.reports.report(Accept(offer.lease))
        for _ in range(2):  # Without a free slot, and then with one.
            waiting = stream.reading()
            await turns()
            await clock.advance(ms=KEEP_ALIVE_MS)
            assert await waiting == []
            stream.stream.add_credit(1)


async def test_a_stream_that_breaks_gives_back_everything_that_was_not_accepted(jobs: Jobs) -> None:
    stored = {(await enqueue(jobs)).job_id for _ in range(5)}
    async with reader(jobs, 5) as stream:
        offers = await stream.next()
        await jobs.reports.report(Accept(offers[0].lease))
        accepted = offers[0].lease.job_id
    await jobs.settle()
    back = await poll(jobs, 10)
    assert {offer.lease.job_id for offer in back} == stored - {accepted}
    assert {offer.lease.attempt for offer in back} == {1}
    assert (await jobs.looking.job(accepted)).state is JobState.RUNNING
    assert len(jobs.streams) == 0
    assert not jobs.streams.holders
    with pytest.raises(StreamDoesNotExist):
        jobs.streams.find(stream.stream.name)


async def test_a_stream_ends_when_the_service_stops(jobs: Jobs) -> None:
    await enqueue(jobs)
    async with reader(jobs, 1) as full, reader(jobs, 1) as idle:
        await full.next()
        waiting = [full.reading(), idle.reading()]
        await turns()
        jobs.end_waits()
        for one in waiting:
            with pytest.raises(StopAsyncIteration):
                await one


async def test_a_stream_ends_with_its_queue(jobs: Jobs) -> None:
    async with reader(jobs, 1) as stream:
        waiting = stream.reading()
        await parked(jobs, 1)
        await jobs.queues.delete(QUEUE)
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_a_stream_lasts_so_long_and_there_are_so_many(home: Home, clock: ManualClock) -> None:
    limits = JobLimits(streams_max=1, stream_ms_max=20_000)
    jobs = (await home.engine(job_limits=limits)).jobs
    async with reader(jobs, 1) as stream:
        with pytest.raises(OverLimit):
            jobs.streams.open([QUEUE], credit=1)
        for step_ms in (KEEP_ALIVE_MS, 5_000):
            waiting = stream.reading()
            await parked(jobs, 1)
            await clock.advance(ms=step_ms)
            assert await waiting == []
        with pytest.raises(StopAsyncIteration):
            await stream.next()
