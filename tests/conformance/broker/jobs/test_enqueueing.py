"""Jobs come in: once for each key, with their result once there is one, and not more than there may be."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.jobs.enqueueing import Stored
from penstock.broker.jobs.jobs import Jobs
from penstock.broker.jobs.refusals import FLOOD_MS, FULL_MS, FULL_TIMES
from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import RandomIds
from penstock.domain.job import JobState
from penstock.domain.job_errors import (
    IdempotencyKeyBusy,
    IdempotencyKeyNeeded,
    IdempotencyKeyReused,
    JobInvalid,
    JobRefused,
    JobTooLarge,
    TooMany,
)
from penstock.domain.job_queue import Rate
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import Limits
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, Pause, accept, enqueue, finish, make_queue
from tests.support.stores import Home, on_postgres


async def test_a_queue_is_made_by_its_first_job(jobs: Jobs) -> None:
    stored = await enqueue(jobs, queue="new")
    assert (stored.queue, stored.state, stored.replayed) == ("new", JobState.QUEUED, False)
    assert [queue.name for queue in (await jobs.queues.list_queues()).queues] == ["new"]


async def test_a_key_that_is_known_gives_the_first_job_and_in_the_end_its_result(jobs: Jobs) -> None:
    first = await enqueue(jobs, payload=b'{"a": 1, "b": 2}', idempotency_key="once")
    again = await enqueue(jobs, payload=b'{"b":2,"a":1}', idempotency_key="once")
    assert (again.job_id, again.replayed, again.result) == (first.job_id, True, None)
    await finish(jobs, b'"done"')
    for _ in range(2):  # From the store, and from the cache.
        last = await enqueue(jobs, payload=b'{"a": 1, "b": 2}', idempotency_key="once")
        assert (last.job_id, last.state, last.result) == (first.job_id, JobState.SUCCEEDED, b'"done"')


async def test_a_cached_result_is_given_without_asking_the_store(jobs: Jobs, failpoints: Failpoints) -> None:
    await enqueue(jobs, idempotency_key="once")
    await finish(jobs, b"7")
    await enqueue(jobs, idempotency_key="once")

    def fail() -> None:
        raise StoreUnavailable("The store is away.")

    failpoints.arm("jobs.enqueue.begun", fail)
    assert (await enqueue(jobs, idempotency_key="once")).result == b"7"
    with pytest.raises(IdempotencyKeyReused):
        await enqueue(jobs, "another", idempotency_key="once")
    assert failpoints.armed("jobs.enqueue.begun")


async def test_a_cached_result_is_forgotten_with_its_key(jobs: Jobs, clock: ManualClock) -> None:
    await make_queue(jobs, key_ttl_ms=10_000)
    first = await enqueue(jobs, idempotency_key="once")
    await finish(jobs, b"7")
    assert (await enqueue(jobs, idempotency_key="once")).result == b"7"
    await clock.advance(seconds=10)
    assert (await enqueue(jobs, idempotency_key="once")).job_id != first.job_id


async def test_the_same_key_with_another_request_is_refused(jobs: Jobs) -> None:
    await enqueue(jobs, payload=b"1", idempotency_key="once")
    with pytest.raises(IdempotencyKeyReused):
        await enqueue(jobs, payload=b"2", idempotency_key="once")
    other = await enqueue(jobs, payload=b"2", idempotency_key="once", tenant="another")
    assert not other.replayed


async def test_a_key_whose_first_request_is_being_stored_is_busy(jobs: Jobs, failpoints: Failpoints) -> None:
    await make_queue(jobs)
    pause = Pause(failpoints, "jobs.enqueue.begun")
    first = asyncio.create_task(enqueue(jobs, idempotency_key="once"))
    await pause.reached.wait()
    with pytest.raises(IdempotencyKeyBusy):
        await enqueue(jobs, idempotency_key="once")
    assert not (await enqueue(jobs, idempotency_key="twice")).replayed
    pause.go_on.set()
    assert not (await first).replayed
    assert (await enqueue(jobs, idempotency_key="once")).job_id == (await first).job_id


async def test_a_key_is_free_again_after_its_request_failed(jobs: Jobs, failpoints: Failpoints) -> None:
    await make_queue(jobs)

    def fail() -> None:
        raise StoreUnavailable("The store is away.")

    failpoints.arm("jobs.enqueue.begun", fail)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs, idempotency_key="once")
    assert not (await enqueue(jobs, idempotency_key="once")).replayed


async def test_a_key_is_derived_from_task_payload_and_tenant_where_the_queue_says_so(jobs: Jobs) -> None:
    await make_queue(jobs, derive_keys=True)
    first = await enqueue(jobs, payload=b'{"a": 1}')
    assert (await enqueue(jobs, payload=b'{"a":1}')).job_id == first.job_id
    others = [
        await enqueue(jobs, payload=b'{"a": 2}'),
        await enqueue(jobs, "another", payload=b'{"a": 1}'),
        await enqueue(jobs, payload=b'{"a": 1}', tenant="another"),
    ]
    assert not any(other.replayed for other in others)


async def test_a_strict_queue_takes_no_job_without_a_key(jobs: Jobs) -> None:
    await make_queue(jobs, strict=True)
    with pytest.raises(IdempotencyKeyNeeded):
        await enqueue(jobs)
    assert not (await enqueue(jobs, idempotency_key="once")).replayed


async def test_a_unique_key_stands_for_the_unfinished_job(jobs: Jobs) -> None:
    first = await enqueue(jobs, unique_key="report")
    second = await enqueue(jobs, unique_key="report")
    assert (second.job_id, second.duplicate, second.replayed) == (first.job_id, True, False)
    await finish(jobs)
    assert not (await enqueue(jobs, unique_key="report")).duplicate


async def test_each_entry_of_a_batch_is_judged_by_itself(jobs: Jobs) -> None:
    await make_queue(jobs, "small", depth_max=1)
    outcomes = await jobs.enqueueing.enqueue_batch(
        [
            ("small", JobRequest(task="fits")),
            ("other", JobRequest(task="fits too")),
            ("small", JobRequest(task="too many")),
            ("other", JobRequest(task="")),
            ("no such name!", JobRequest(task="nowhere")),
            ("other", JobRequest(task="keyed", idempotency_key="once")),
            ("other", JobRequest(task="keyed", idempotency_key="once")),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [
        Stored,
        Stored,
        JobRefused,
        JobInvalid,
        JobInvalid,
        Stored,
        Stored,
    ]
    keyed, again = outcomes[5:]
    assert isinstance(keyed, Stored)
    assert isinstance(again, Stored)
    assert (again.job_id, again.replayed) == (keyed.job_id, True)


async def test_a_batch_tells_what_was_stored_though_another_queue_failed(jobs: Jobs, failpoints: Failpoints) -> None:
    await make_queue(jobs, "first")
    await make_queue(jobs, "second")

    def fail() -> None:
        raise StoreUnavailable("The store is away.")

    failpoints.arm("jobs.enqueue.begun", fail)
    outcomes = await jobs.enqueueing.enqueue_batch(
        [("first", JobRequest(task="lost")), ("second", JobRequest(task="kept"))]
    )
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, Stored]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (JobRequest(task="\n"), "task"),
        (JobRequest(task="x" * 201), "task"),
        (JobRequest(task="x", tenant="\x00"), "tenant"),
        (JobRequest(task="x", delay_ms=-1), "delay_ms"),
        (JobRequest(task="x", delay_ms=1, run_at_ms=1), "run_at_ms"),
        (JobRequest(task="x", run_at_ms=2**60), "run_at_ms"),
        (JobRequest(task="x", priority=10), "priority"),
        (JobRequest(task="x", group="a", concurrency_key="b"), "group"),
        (JobRequest(task="x", tags=("",)), "tags"),
        (JobRequest(task="x", tags=("a",) * 21), "tags"),
        (JobRequest(task="x", timeout_ms=0), "timeout_ms"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_the_name_of_its_field(
    jobs: Jobs, request_: JobRequest, field: str
) -> None:
    with pytest.raises(JobInvalid) as refused:
        await jobs.enqueueing.enqueue("orders", request_)
    assert refused.value.field == field


async def test_a_payload_has_its_limit(jobs: Jobs) -> None:
    with pytest.raises(JobTooLarge):
        await enqueue(jobs, payload=b'"' + b"x" * 1_048_576 + b'"')


# -- floods ---------------------------------------------------------------------------------------


async def test_a_flood_beyond_the_rate_is_turned_away_without_asking_the_store_each_time(
    jobs: Jobs, clock: ManualClock, failpoints: Failpoints
) -> None:
    await make_queue(jobs, rate=Rate(per_second=10, burst=2))
    await enqueue(jobs)
    await enqueue(jobs)
    with pytest.raises(JobRefused) as refused:
        await enqueue(jobs)
    assert (refused.value.why, refused.value.retry_after_ms) == (TooMany.RATE_GLOBAL, 100)

    def fail() -> None:
        raise StoreUnavailable("The store was asked.")

    failpoints.arm("jobs.enqueue.begun", fail)
    await clock.advance(ms=60)
    for _ in range(100):
        with pytest.raises(JobRefused) as refused:
            await enqueue(jobs)
        assert (refused.value.why, refused.value.retry_after_ms) == (TooMany.RATE_GLOBAL, 40)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs, idempotency_key="may be known already")
    await clock.advance(ms=40)
    await enqueue(jobs)


async def test_of_a_flood_only_as_many_reach_the_store_as_there_may_be_tokens_for(
    jobs: Jobs, clock: ManualClock, failpoints: Failpoints
) -> None:
    await make_queue(jobs, rate=Rate(per_second=10, burst=2))
    stored, refused = await flood(jobs, 3)
    assert (stored, refused) == (2, 1)
    await clock.advance(ms=100)
    pause = Pause(failpoints, "jobs.enqueue.begun")
    first = asyncio.create_task(enqueue(jobs))
    await pause.reached.wait()
    # The first is not answered yet, and the others are known to be too many.
    assert await flood(jobs, 50) == (0, 50)
    pause.go_on.set()
    await first
    await clock.advance(ms=250)
    assert await flood(jobs, 50) == (2, 48)
    await clock.advance(ms=10_000)
    assert await flood(jobs, 3) == (2, 1)


@pytest.mark.parametrize("settings", [{}, {"rate_per_tenant": Rate(per_second=10, burst=2)}])
async def test_a_token_that_a_failing_store_did_not_take_is_still_there(
    jobs: Jobs, clock: ManualClock, failpoints: Failpoints, settings: dict[str, Any]
) -> None:
    await make_queue(jobs, **{"rate": Rate(per_second=10, burst=2), **settings})
    assert await flood(jobs, 3) == (2, 1)
    await clock.advance(ms=100)

    def fail() -> None:
        raise StoreUnavailable("The store is down.")

    failpoints.arm("jobs.enqueue.begun", fail)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs)
    assert await flood(jobs, 5) == (1, 4)


async def test_a_token_that_a_full_queue_did_not_take_is_still_there(jobs: Jobs, clock: ManualClock) -> None:
    await make_queue(jobs, rate=Rate(per_second=10, burst=2), depth_max=2)
    assert await flood(jobs, 3) == (2, 1)
    await clock.advance(ms=100)
    assert await flood(jobs, 1) == (0, 1)
    await accept(jobs)
    assert await flood(jobs, 5) == (1, 4)


async def flood(jobs: Jobs, count: int) -> tuple[int, int]:
    """Enqueue so many at once; return how many were stored, and how many refused."""
    outcomes = await asyncio.gather(*(enqueue(jobs) for _ in range(count)), return_exceptions=True)
    found = Counter(type(outcome) for outcome in outcomes)
    assert set(found) <= {Stored, JobRefused}
    return found[Stored], found[JobRefused]


async def test_a_tenant_beyond_its_rate_does_not_keep_others_out(jobs: Jobs) -> None:
    await make_queue(jobs, rate_per_tenant=Rate(per_second=1, burst=1))
    await enqueue(jobs, tenant="noisy")
    for _ in range(2):
        with pytest.raises(JobRefused) as refused:
            await enqueue(jobs, tenant="noisy")
        assert refused.value.why is TooMany.RATE_TENANT
    await enqueue(jobs, tenant="quiet")


async def test_a_full_queue_takes_jobs_again_as_soon_as_one_is_taken(jobs: Jobs) -> None:
    await make_queue(jobs, depth_max=1)
    await enqueue(jobs)
    with pytest.raises(JobRefused) as refused:
        await enqueue(jobs)
    assert refused.value.why is TooMany.QUEUE_FULL
    await accept(jobs)
    await enqueue(jobs)


async def test_a_queue_that_is_full_again_and_again_is_not_looked_at_each_time(
    jobs: Jobs, clock: ManualClock, failpoints: Failpoints
) -> None:
    await make_queue(jobs, depth_max=1)
    await enqueue(jobs)
    assert await flood(jobs, FULL_TIMES - 1) == (0, FULL_TIMES - 1)
    fail_next(failpoints)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs)
    assert await flood(jobs, 1) == (0, 1)
    fail_next(failpoints)
    for _ in range(100):
        with pytest.raises(JobRefused) as refused:
            await enqueue(jobs)
        assert (refused.value.why, refused.value.retry_after_ms) == (TooMany.QUEUE_FULL, 1_000)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs, idempotency_key="may be known already")
    fail_next(failpoints)
    await clock.advance(ms=FULL_MS)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs)


async def test_one_looks_for_all_whether_a_full_queue_has_room(
    jobs: Jobs, clock: ManualClock, failpoints: Failpoints
) -> None:
    await make_queue(jobs, depth_max=3)
    await flood(jobs, 3)
    await flood(jobs, FULL_TIMES)
    await accept(jobs)
    await accept(jobs)
    await clock.advance(ms=FULL_MS)
    pause = Pause(failpoints, "jobs.enqueue.begun")
    looking = asyncio.create_task(enqueue(jobs))
    await pause.reached.wait()
    assert await flood(jobs, 50) == (0, 50)
    pause.go_on.set()
    await looking
    assert await flood(jobs, 50) == (1, 49)


async def test_a_queue_that_was_full_takes_what_there_is_room_for(jobs: Jobs, clock: ManualClock) -> None:
    await make_queue(jobs, depth_max=5)
    assert await flood(jobs, 5) == (5, 0)
    await flood(jobs, FULL_TIMES)
    for _ in range(3):
        await accept(jobs)
    assert await flood(jobs, 1) == (0, 1)
    await clock.advance(ms=FULL_MS)
    assert [type(outcome) for outcome in [await attempt(jobs) for _ in range(4)]] == [*[Stored] * 3, JobRefused]
    # It is the same flood, and so it takes only one look until the queue is taken to be full again.
    await accept(jobs)
    assert await flood(jobs, 1) == (0, 1)


async def test_a_flood_is_over_after_a_while(jobs: Jobs, clock: ManualClock) -> None:
    await make_queue(jobs, depth_max=1)
    await enqueue(jobs)
    await flood(jobs, FULL_TIMES)
    await clock.advance(ms=FLOOD_MS)
    assert await flood(jobs, 1) == (0, 1)
    await accept(jobs)
    assert await flood(jobs, 1) == (1, 0)


async def test_a_strict_queue_is_looked_at_each_time(jobs: Jobs) -> None:
    await make_queue(jobs, depth_max=1, strict=True)
    await enqueue(jobs, idempotency_key="first")
    for number in range(2 * FULL_TIMES):
        with pytest.raises(JobRefused):
            await enqueue(jobs, idempotency_key=f"beyond {number}")
    await accept(jobs)
    await enqueue(jobs, idempotency_key="last")


async def test_what_is_known_to_be_refused_can_be_told_at_once(jobs: Jobs, clock: ManualClock) -> None:
    await make_queue(jobs, rate_per_tenant=Rate(per_second=10, burst=1))
    assert jobs.enqueueing.foresee(QUEUE, "noisy") is None
    await enqueue(jobs, tenant="noisy")
    with pytest.raises(JobRefused):
        await enqueue(jobs, tenant="noisy")
    for _ in range(3):
        foreseen = jobs.enqueueing.foresee(QUEUE, "noisy")
        assert foreseen is not None
        assert (foreseen.why, foreseen.retry_after_ms) == (TooMany.RATE_TENANT, 100)
    assert jobs.enqueueing.foresee(QUEUE, "quiet") is None
    assert jobs.enqueueing.foresee("absent", "noisy") is None
    await clock.advance(ms=100)
    assert jobs.enqueueing.foresee(QUEUE, "noisy") is None
    await enqueue(jobs, tenant="noisy")


async def test_of_a_queue_that_derives_keys_nothing_is_told_beforehand(jobs: Jobs) -> None:
    await make_queue(jobs, rate=Rate(per_second=10, burst=1), derive_keys=True)
    await enqueue(jobs, "first")
    with pytest.raises(JobRefused):
        await enqueue(jobs, "second")
    assert jobs.enqueueing.foresee(QUEUE, "") is None
    assert (await enqueue(jobs, "first")).replayed


def fail_next(failpoints: Failpoints) -> None:
    """Let the store fail, if it is asked."""

    def fail() -> None:
        raise StoreUnavailable("The store was asked.")

    failpoints.arm("jobs.enqueue.begun", fail)


async def attempt(jobs: Jobs) -> Stored | PenstockError:
    try:
        return await enqueue(jobs)
    except PenstockError as error:
        return error


# -- many at once ---------------------------------------------------------------------------------


async def test_two_hundred_enqueues_with_one_key_make_one_job(jobs: Jobs) -> None:
    await make_queue(jobs)
    outcomes = await asyncio.gather(*(enqueue(jobs, idempotency_key="one") for _ in range(200)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {Stored, IdempotencyKeyBusy}
    # Who found the key busy tries again, as a client does, and is told of the same job.
    again = [await enqueue(jobs, idempotency_key="one") for outcome in outcomes if not isinstance(outcome, Stored)]
    stored = [*(outcome for outcome in outcomes if isinstance(outcome, Stored)), *again]
    assert len(stored) == 200
    assert len({one.job_id for one in stored}) == 1
    assert Counter(one.replayed for one in stored)[False] == 1


@on_postgres
async def test_two_hundred_enqueues_with_one_key_on_two_nodes_make_one_job(
    home: Home, store: Store, jobs: Jobs, clock: ManualClock
) -> None:
    other = Broker(await home.open(), clock=clock, ids=RandomIds(), limits=Limits()).jobs
    await make_queue(jobs)
    outcomes = await asyncio.gather(
        *(enqueue(node, idempotency_key="one") for _ in range(100) for node in (jobs, other)), return_exceptions=True
    )
    stored = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
    assert len({one.job_id for one in stored}) == 1
    assert Counter(one.replayed for one in stored)[False] == 1
    assert {type(outcome) for outcome in outcomes} <= {Stored, IdempotencyKeyBusy}
    assert not [outcome for outcome in outcomes if not isinstance(outcome, Stored | PenstockError)]
