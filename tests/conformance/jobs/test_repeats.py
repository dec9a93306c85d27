"""Calls that are repeated because their answers were lost: one effect, whatever has become of the job since."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.domain.job import JobState
from penstock.domain.job_errors import (
    IdempotencyKeyReused,
    JobDoesNotExist,
    JobExists,
    JobStateConflict,
    LeaseLost,
    OperationDoesNotExist,
)
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.domain.limits import REPEAT_WINDOW_MS
from penstock.domain.operation import JobFilter, OperationKind
from penstock.domain.repeats import call_key, operation_id_of, turn_of
from penstock.store.job_port import Accept, Enqueued, JobStore, Release
from penstock.testing import ManualClock
from tests.support import job_fates
from tests.support.job_fates import SINCE, run_operations
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    enqueue_one,
    event_kinds,
    finish,
    key_of,
    make_queue,
    offer,
    refused,
    report,
    state_of,
)

CALL, OTHER_CALL = call_key("call"), call_key("another call")


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    """A queue that keeps nothing for longer than it has to."""
    return await make_queue(jobs, retention_ms=0, dead_retention_ms=0, key_ttl_ms=1)


async def seen(jobs: JobStore, queue: JobQueue, job_id: str) -> Any:
    """Everything that a second effect would change."""
    try:
        job, kinds = await jobs.job(job_id), await event_kinds(jobs, job_id)
    except JobDoesNotExist:
        job, kinds = None, []
    return job, kinds, await counted(jobs, queue)


# -- enqueue --------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("since", SINCE)
async def test_a_repeated_enqueue_makes_no_second_job(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, since: str, keyed: bool
) -> None:
    one = draft(idempotency_key=key_of("k") if keyed else None, unique_key="u" if keyed else None)
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED)
    await SINCE[since](jobs, queue, clock, one.id)
    before = await seen(jobs, queue, one.id)
    state = JobState.CANCELLED if before[0] is None else before[0].state
    assert await jobs.enqueue(queue, [one, one]) == [Enqueued(one.id, state, new=False)] * 2
    assert await seen(jobs, queue, one.id) == before


@pytest.mark.parametrize("since", SINCE)
async def test_an_enqueue_repeated_by_its_key_alone_makes_no_second_job(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, since: str
) -> None:
    first, again, other = (
        draft(idempotency_key=key_of("k"), fingerprint=fingerprint) for fingerprint in (b"1", b"1", b"2")
    )
    await enqueue(jobs, queue, first)
    await SINCE[since](jobs, queue, clock, first.id)
    before = await seen(jobs, queue, first.id)
    state = JobState.CANCELLED if before[0] is None else before[0].state
    assert await enqueue_one(jobs, queue, again) == Enqueued(first.id, state, new=False)
    assert isinstance(await enqueue_one(jobs, queue, other), IdempotencyKeyReused)
    assert await seen(jobs, queue, first.id) == before


@pytest.mark.parametrize("since", ["nothing", "running", "succeeded", "purged"])
@pytest.mark.parametrize("field", ["queue", "task", "tenant", "payload"])
async def test_an_id_that_names_another_job_is_refused(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, field: str, since: str
) -> None:
    [job_id] = await enqueue(jobs, queue)
    await SINCE[since](jobs, queue, clock, job_id)
    before = await seen(jobs, queue, job_id)
    changed: dict[str, Any] = {"task": "other", "tenant": "other", "payload": b"2"}
    elsewhere = await make_queue(jobs, "elsewhere") if field == "queue" else queue
    other = draft(id=job_id, **({} if field == "queue" else {field: changed[field]}))
    answer = await enqueue_one(jobs, elsewhere, other)
    assert isinstance(answer, JobExists)
    assert answer.reason == "Another job has this id."
    assert await seen(jobs, queue, job_id) == before
    assert await counted(jobs, elsewhere) == before[2] or field == "queue"


async def test_a_payload_written_in_another_way_is_the_same(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue, draft(payload=b'{"a": 1, "b": 2}'))
    again = await enqueue_one(jobs, queue, draft(id=job_id, payload=b'{"b":2,"a":1}'))
    assert again == Enqueued(job_id, JobState.QUEUED, new=False)


async def test_the_same_id_twice_in_a_batch_is_one_job(jobs: JobStore, queue: JobQueue) -> None:
    one = draft(idempotency_key=key_of("k"))
    first, second, other = await jobs.enqueue(queue, [one, one, draft(id=one.id, payload=b"2")])
    assert first == Enqueued(one.id, JobState.QUEUED)
    assert second == Enqueued(one.id, JobState.QUEUED, new=False)
    assert isinstance(other, JobExists)
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}


async def test_one_id_in_two_queues_at_once_is_one_job(jobs: JobStore, queue: JobQueue) -> None:
    elsewhere = await make_queue(jobs, "elsewhere")
    one = draft()
    answers = await asyncio.gather(enqueue_one(jobs, queue, one), enqueue_one(jobs, elsewhere, one))
    assert sorted(type(answer).__name__ for answer in answers) == ["Enqueued", "JobExists"]
    assert sorted([len(await counted(jobs, queue)), len(await counted(jobs, elsewhere))]) == [0, 1]


async def test_a_repeat_is_found_where_the_queue_is_full(jobs: JobStore) -> None:
    tight = await make_queue(jobs, "tight", depth_max=1)
    one = draft()
    await enqueue(jobs, tight, one)
    assert await enqueue_one(jobs, tight, one) == Enqueued(one.id, JobState.QUEUED, new=False)


@pytest.mark.parametrize("since", ["swept", "purged"])
async def test_after_the_window_an_id_is_forgotten(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, since: str
) -> None:
    one = draft(idempotency_key=key_of("k"))
    await enqueue(jobs, queue, one)
    await SINCE[since](jobs, queue, clock, one.id)
    await clock.advance(ms=REPEAT_WINDOW_MS)
    while await jobs.sweep():
        pass
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED)


async def test_a_purged_job_is_not_enqueued_again_in_a_queue_made_anew(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    one = draft()
    await enqueue(jobs, queue, one)
    await job_fates.purged(jobs, queue, clock, one.id)
    await jobs.delete_queue(queue)
    anew = await make_queue(jobs)
    assert await enqueue_one(jobs, anew, one) == Enqueued(one.id, JobState.CANCELLED, new=False)


# -- cancel and retry -----------------------------------------------------------------------------

BEFORE_CANCEL = ["nothing", "offered", "running", "asked_to_stop", "retrying", "cancelled"]
BEFORE_RETRY = ["nothing", "retrying", "dead", "cancelled"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("since", [*SINCE, ""])
@pytest.mark.parametrize("at_first", BEFORE_CANCEL)
async def test_a_repeated_cancellation_has_one_effect(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, at_first: str, since: str
) -> None:
    [job_id] = await enqueue(jobs, queue)
    await SINCE[at_first](jobs, queue, clock, job_id)
    told = await jobs.cancel(job_id, call=CALL)
    if told.state is JobState.RUNNING and since:
        # Its worker dies, so it is cancelled.
        await clock.advance(ms=queue.settings.lease_ms)
        await advance(jobs)
    if since:
        # Somebody has it run again.
        await jobs.retry(job_id)
        await SINCE[since](jobs, queue, clock, job_id)
    before = await seen(jobs, queue, job_id)
    for _ in range(2):
        if before[0] is None:
            with pytest.raises(JobDoesNotExist):
                await jobs.cancel(job_id, call=CALL)
        else:
            assert await jobs.cancel(job_id, call=CALL) == before[0]
    assert await seen(jobs, queue, job_id) == before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("at_first", BEFORE_RETRY)
async def test_a_repeated_retry_has_one_effect(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, at_first: str, since: str
) -> None:
    [job_id] = await enqueue(jobs, queue)
    await SINCE[at_first](jobs, queue, clock, job_id)
    assert (await jobs.retry(job_id, call=CALL)).state is JobState.QUEUED
    await SINCE[since](jobs, queue, clock, job_id)
    before = await seen(jobs, queue, job_id)
    for _ in range(2):
        if before[0] is None:
            with pytest.raises(JobDoesNotExist):
                await jobs.retry(job_id, call=CALL)
        else:
            assert await jobs.retry(job_id, call=CALL) == before[0]
    assert await seen(jobs, queue, job_id) == before


async def test_another_call_has_an_effect_of_its_own(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue)
    await job_fates.dead(jobs, queue, clock, job_id)
    await jobs.retry(job_id, call=CALL)
    await job_fates.dead(jobs, queue, clock, job_id)
    assert (await jobs.retry(job_id, call=OTHER_CALL)).state is JobState.QUEUED
    # What was refused has had no effect, so it is not taken for done.
    await job_fates.running(jobs, queue, clock, job_id)
    with pytest.raises(JobStateConflict):
        await jobs.retry(job_id, call=call_key("third"))


async def test_a_worker_cannot_take_the_place_of_a_retry(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    await report(jobs, Accept(one.lease))
    await jobs.publish(one.lease, CALL, "progress", b"1")
    await jobs.cancel(job_id, call=CALL)
    assert (await jobs.job(job_id)).cancel_requested


# -- offers ---------------------------------------------------------------------------------------


async def offer_again(jobs: JobStore, queue: JobQueue, call: str = CALL, count: int = 10) -> list[Any]:
    return await jobs.offer_again([queue], count=count, turn=turn_of(call))


async def offer_in_turn(jobs: JobStore, queue: JobQueue, count: int = 10, call: str = CALL) -> list[Any]:
    return (await jobs.offer(queue, count=count, worker="one", turn=turn_of(call))).offers


async def test_a_repeated_poll_is_offered_the_same_jobs_under_higher_fences(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    ids = await enqueue(jobs, queue, draft(), draft(), draft())
    first = await offer_in_turn(jobs, queue, 2)
    await clock.advance(ms=queue.settings.offer_ms - 1)
    again = await offer_again(jobs, queue)
    assert [one.lease.job_id for one in again] == ids[:2]
    assert [one.lease.fence for one in again] == [one.lease.fence + 1 for one in first]
    assert all(one.accept_by_ms == clock.now_ms() + queue.settings.offer_ms for one in again)
    assert await counted(jobs, queue) == {JobState.OFFERED: 2, JobState.QUEUED: 1}
    # The request that died gives back what it was offered.
    for one in first:
        assert isinstance(await refused(jobs, Release(one.lease, unaccepted=True)), LeaseLost)
        assert isinstance(await refused(jobs, Accept(one.lease)), LeaseLost)
    for one in again:
        assert (await report(jobs, Accept(one.lease))).attempt == 1
    assert await offer_again(jobs, queue) == []


@pytest.mark.parametrize("lane", [None, job_fates.GROUP, job_fates.KEY])
async def test_what_was_offered_again_keeps_its_place_in_its_lane(jobs: JobStore, queue: JobQueue, lane: Any) -> None:
    first, second = await enqueue(jobs, queue, draft(lane=lane), draft(lane=lane))
    await offer_in_turn(jobs, queue, 1)
    [one] = await offer_again(jobs, queue)
    assert one.lease.job_id == first
    await report(jobs, Accept(one.lease))
    await finish(jobs, one.lease)
    assert [each.lease.job_id for each in await offer(jobs, queue)] == [second]


@pytest.mark.parametrize("since", ["accepted", "released", "lapsed", "lapsed and offered", "cancelled", "finished"])
async def test_only_open_offers_of_the_first_poll_are_made_again(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, since: str
) -> None:
    [job_id] = await enqueue(jobs, queue)
    [one] = await offer_in_turn(jobs, queue)
    if since in ("accepted", "finished"):
        await report(jobs, Accept(one.lease))
    if since == "finished":
        await finish(jobs, one.lease)
    if since == "released":
        await report(jobs, Release(one.lease))
    if since.startswith("lapsed"):
        await clock.advance(ms=queue.settings.offer_ms)
    if since == "lapsed and offered":
        await offer(jobs, queue, worker="other")
    if since == "cancelled":
        await jobs.cancel(job_id)
    before = await seen(jobs, queue, job_id)
    assert await offer_again(jobs, queue) == []
    assert await seen(jobs, queue, job_id) == before


async def test_nobody_meets_the_offers_of_another_call(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue)
    await offer_in_turn(jobs, queue)
    assert await offer_again(jobs, queue, OTHER_CALL) == []
    assert len(await offer_again(jobs, queue)) == 1


async def test_offers_of_several_queues_are_made_again(jobs: JobStore, queue: JobQueue) -> None:
    elsewhere = await make_queue(jobs, "elsewhere")
    await enqueue(jobs, queue, draft(), draft())
    await enqueue(jobs, elsewhere, draft(), draft())
    for each in (queue, elsewhere):
        await offer_in_turn(jobs, each)
    again = await jobs.offer_again([elsewhere, queue], count=3, turn=turn_of(CALL))
    assert [one.queue for one in again] == ["elsewhere", "elsewhere", "mail"]


# -- operations and settings ----------------------------------------------------------------------


async def purge(jobs: JobStore, queue: JobQueue, call: str = CALL) -> Any:
    return await jobs.start_operation(operation_id_of(call), OperationKind.PURGE, queue, JobFilter(), None)


@pytest.mark.parametrize("ended", [False, True])
async def test_a_repeated_purge_leaves_what_came_in_between(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, ended: bool
) -> None:
    await enqueue(jobs, queue)
    first = await purge(jobs, queue)
    if ended:
        await run_operations(jobs)
    [later] = await enqueue(jobs, queue)
    # Others that came since do not make it forgotten, within the window.
    for number in range(101):
        await jobs.start_operation(f"other-{number}", OperationKind.REQUEUE, queue, JobFilter(), None)
    await run_operations(jobs)
    while await jobs.sweep():
        pass
    await clock.advance(ms=REPEAT_WINDOW_MS - 1)
    assert (await purge(jobs, queue)).id == first.id
    await run_operations(jobs)
    assert await state_of(jobs, later) is JobState.QUEUED


async def test_a_repeated_purge_leaves_a_queue_that_was_made_anew(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue)
    await purge(jobs, queue)
    await run_operations(jobs)
    await jobs.delete_queue(queue)
    anew = await make_queue(jobs)
    [later] = await enqueue(jobs, anew)
    with pytest.raises(OperationDoesNotExist):
        await purge(jobs, anew)
    await run_operations(jobs)
    assert await state_of(jobs, later) is JobState.QUEUED


async def test_a_requeue_stops_at_its_limit(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    ids = await enqueue(jobs, queue, *[draft() for _ in range(5)])
    for job_id in ids:
        await job_fates.dead(jobs, queue, clock, job_id)
    dead_first = JobFilter(states=(JobState.DEAD,))
    for _ in range(2):
        await jobs.start_operation("some", OperationKind.REQUEUE, queue, dead_first, None, limit=3)
        await run_operations(jobs)
    done = await jobs.operation("some")
    assert (done.limit, done.done, done.state.label) == (3, 3, "done")
    assert await counted(jobs, queue) == {JobState.QUEUED: 3, JobState.DEAD: 2}
    assert [await state_of(jobs, job_id) for job_id in ids[:3]] == [JobState.QUEUED] * 3


async def test_a_repeated_change_of_a_queue_is_not_made_over_anothers(jobs: JobStore, queue: JobQueue) -> None:
    mine, theirs = JobQueueSettings(lease_ms=11_000), JobQueueSettings(lease_ms=22_000)
    changed = await jobs.save_queue(queue, settings=mine, call=CALL)
    assert changed is not None
    by_another = await jobs.save_queue(changed, settings=theirs)
    assert await jobs.save_queue(queue, settings=mine, call=CALL) == by_another
    # Also of one that came without a revision, so that the present one is taken.
    assert by_another is not None
    assert await jobs.save_queue(by_another, settings=mine, call=CALL) == by_another
    # Another call is refused, as ever.
    assert await jobs.save_queue(queue, settings=mine, call=OTHER_CALL) is None
