"""Polls, streams and credit whose answers were lost: who asks again gets what was meant for the first try."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from penstock.domain.job import JobState
from penstock.domain.job_errors import JobExists, JobInvalid, JobRefused
from penstock.domain.job_queue import Rate
from penstock.domain.job_request import JobRequest
from penstock.domain.repeats import call_key
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Accept, Complete
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, enqueue, finish, make_queue, parked, poll
from tests.support.job_streams import reader, turns

CALL, OTHER_CALL = call_key("call"), call_key("another call")
ID, OTHER_ID = str(UUID(int=17)), str(UUID(int=18))


async def test_a_repeat_of_an_enqueueing_has_the_result(jobs: Jobs) -> None:
    assert (await enqueue(jobs, id=ID)).job_id == ID
    again = await enqueue(jobs, id=ID)
    assert (again.job_id, again.state, again.replayed) == (ID, JobState.QUEUED, True)
    await finish(jobs, b"17")
    again = await enqueue(jobs, id=ID)
    assert (again.state, again.replayed, again.result) == (JobState.SUCCEEDED, True, b"17")
    with pytest.raises(JobExists):
        await enqueue(jobs, id=ID, payload=b"2")


@pytest.mark.parametrize(
    "text", ["", "17", ID.upper().replace("0", "A"), ID.replace("-", ""), f"{{{ID}}}", f"{ID}\n", f"urn:uuid:{ID}"]
)
async def test_an_id_is_a_uuid_in_canonical_form(jobs: Jobs, text: str) -> None:
    with pytest.raises(JobInvalid) as refused:
        await enqueue(jobs, id=text)
    assert refused.value.field == "id"


async def test_an_id_is_no_part_of_what_a_key_stands_for(jobs: Jobs) -> None:
    await enqueue(jobs, id=ID, idempotency_key="once")
    again = await enqueue(jobs, id=OTHER_ID, idempotency_key="once")
    assert (again.job_id, again.replayed) == (ID, True)


async def test_a_repeat_is_found_while_others_are_refused(jobs: Jobs) -> None:
    await make_queue(jobs, rate=Rate(per_second=0.001, burst=1))
    await enqueue(jobs, id=ID)
    for _ in range(20):
        with pytest.raises(JobRefused):
            await enqueue(jobs)
    assert (await enqueue(jobs, id=ID)).replayed
    with pytest.raises(JobRefused):
        await enqueue(jobs, id=OTHER_ID)


async def ask(jobs: Jobs, count: int = 1, call: str | None = CALL, wait_ms: int = 0, worker: str = "w") -> list[str]:
    offers = await jobs.offering.poll([QUEUE], count=count, worker=worker, wait_ms=wait_ms, call=call)
    return [offer.lease.job_id for offer in offers]


@pytest.mark.parametrize("wait_ms", [0, 20_000])
async def test_a_repeated_poll_gets_the_offers_of_the_first(jobs: Jobs, wait_ms: int) -> None:
    ids = [(await enqueue(jobs)).job_id for _ in range(40)]
    # More than are asked of the store at once.
    first = await ask(jobs, 30, wait_ms=wait_ms)
    assert sorted(first) == sorted(ids[:30])
    assert sorted(await ask(jobs, 30, wait_ms=wait_ms)) == sorted(first)
    assert sorted(await ask(jobs, 30, OTHER_CALL, wait_ms=wait_ms)) == sorted(ids[30:])


async def test_a_late_return_of_the_first_answer_changes_nothing(jobs: Jobs, clock: ManualClock) -> None:
    job_id = (await enqueue(jobs)).job_id
    lost = await jobs.offering.poll([QUEUE], count=1, worker="w", call=CALL)
    [again] = await jobs.offering.poll([QUEUE], count=1, worker="w", call=CALL)
    jobs.offering.give_back(lost)
    await jobs.settle()
    assert (await jobs.looking.job(job_id)).state is JobState.OFFERED
    await jobs.reports.report(Accept(again.lease))
    await jobs.reports.report(Complete(again.lease))


async def test_a_repeated_poll_takes_others_once_the_first_offers_are_over(jobs: Jobs, clock: ManualClock) -> None:
    queue = await make_queue(jobs)
    first, second = (await enqueue(jobs)).job_id, (await enqueue(jobs)).job_id
    assert await ask(jobs) == [first]
    await clock.advance(ms=queue.settings.offer_ms)
    assert await ask(jobs, call=OTHER_CALL) == [first]
    assert await ask(jobs) == [second]


async def test_a_poll_that_still_waits_leaves_the_job_to_its_repeat(jobs: Jobs) -> None:
    """Its connection is dead, but nobody has noticed yet."""
    await make_queue(jobs)
    dead = asyncio.create_task(ask(jobs, wait_ms=20_000))
    await parked(jobs, 1)
    repeat = asyncio.create_task(ask(jobs, wait_ms=20_000))
    await parked(jobs, 2)
    job_id = (await enqueue(jobs)).job_id
    assert await repeat == [job_id]
    assert await dead == []


async def test_a_repeated_poll_of_a_worker_is_no_sign_that_it_hangs(jobs: Jobs, clock: ManualClock) -> None:
    queue = await make_queue(jobs)
    await enqueue(jobs)
    await ask(jobs)
    await clock.advance(ms=queue.settings.offer_ms - 1)
    [again] = await jobs.offering.poll([QUEUE], count=1, worker="w", call=CALL)
    other = asyncio.create_task(ask(jobs, call=OTHER_CALL, wait_ms=60_000))
    await parked(jobs, 1)
    # The offer of the first try would lapse now.
    await clock.advance(ms=1)
    await jobs.reports.report(Accept(again.lease))
    second = (await enqueue(jobs)).job_id
    assert await other == [second]


# -- streams --------------------------------------------------------------------------------------


async def test_a_stream_that_is_opened_again_goes_on_with_its_offers(jobs: Jobs) -> None:
    ids = {(await enqueue(jobs)).job_id for _ in range(3)}
    async with reader(jobs, 2, call=CALL) as lost:
        first = await lost.next()
        await jobs.reports.report(Accept(first[0].lease))
        # As after a crash of this node: nothing is given back.
        lost.stream.close = lambda: None  # type: ignore[method-assign]
        jobs.streams.forget(lost.stream)
        async with reader(jobs, 2, call=CALL) as stream:
            [again] = await stream.next()
            assert again.lease.job_id == first[1].lease.job_id
            assert again.lease.fence == first[1].lease.fence + 1
            [other] = await stream.next()
            assert {first[0].lease.job_id, again.lease.job_id, other.lease.job_id} == ids


async def test_a_stream_that_is_opened_again_ends_the_one_before(jobs: Jobs) -> None:
    job_id = (await enqueue(jobs)).job_id
    async with reader(jobs, 1, call=CALL) as lost:
        await lost.next()
        async with reader(jobs, 1, call=CALL) as stream:
            [offer] = await stream.next()
            assert offer.lease.job_id == job_id
            assert len(jobs.streams) == 1
            with pytest.raises(StopAsyncIteration):
                await lost.next()
            lost.stream.close()
            await jobs.settle()
            assert (await jobs.looking.job(job_id)).state is JobState.OFFERED
        await jobs.settle()
        assert (await jobs.looking.job(job_id)).state is JobState.QUEUED


async def test_offers_beyond_the_credit_of_the_new_stream_go_back(jobs: Jobs) -> None:
    for _ in range(3):
        await enqueue(jobs)
    assert len(await ask(jobs, 3)) == 3
    async with reader(jobs, 1, call=CALL) as stream:
        assert len(await stream.next()) == 1
        await jobs.settle()
        assert len(await poll(jobs, 5, worker="another")) == 2


async def test_a_repeated_change_of_credit_is_one(jobs: Jobs) -> None:
    async with reader(jobs, 1) as stream:
        for _ in range(3):
            stream.stream.add_credit(2, call=CALL)
        assert stream.stream.credit == 3
        stream.stream.add_credit(2, call=OTHER_CALL)
        stream.stream.add_credit(-1)
        stream.stream.add_credit(-1)
        assert stream.stream.credit == 3


async def test_a_refused_change_of_credit_may_be_made_later(jobs: Jobs) -> None:
    async with reader(jobs, 500) as stream:
        with pytest.raises(JobInvalid):
            stream.stream.add_credit(1, call=CALL)
        stream.stream.add_credit(-10)
        stream.stream.add_credit(1, call=CALL)
        assert stream.stream.credit == 491


async def test_a_batch_may_name_the_ids_of_its_jobs(jobs: Jobs) -> None:
    request = JobRequest(task="greet", id=ID)
    outcomes = await jobs.enqueueing.enqueue_batch(
        [(QUEUE, request), (QUEUE, request), ("elsewhere", JobRequest(task="greet", id=OTHER_ID))]
    )
    assert [getattr(outcome, "replayed", None) for outcome in outcomes] == [False, True, False]
    assert [getattr(outcome, "job_id", None) for outcome in outcomes] == [ID, ID, OTHER_ID]
    await turns()
