"""Jobs come in: once for each key, with their result once there is one, and not more than there may be."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import OrderedIds
from penstock.domain.job import JobState
from penstock.domain.job_errors import (
    IdempotencyKeyBusy,
    IdempotencyKeyNeeded,
    IdempotencyKeyReused,
    JobInvalid,
    JobRefused,
    JobTooLarge,
)
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import HOUR_MS, Limits
from penstock.engine.engine import Engine
from penstock.engine.jobs.enqueueing import Stored
from penstock.engine.jobs.jobs import Jobs
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.job_service import Pause, enqueue, finish, make_queue
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
    await make_queue(jobs, key_ttl_ms=HOUR_MS)
    first = await enqueue(jobs, idempotency_key="once")
    await finish(jobs, b"7")
    assert (await enqueue(jobs, idempotency_key="once")).result == b"7"
    await clock.advance(ms=HOUR_MS)
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
    other = Engine(await home.open(), clock=clock, ids=OrderedIds(), limits=Limits()).jobs
    await make_queue(jobs)
    outcomes = await asyncio.gather(
        *(enqueue(node, idempotency_key="one") for _ in range(100) for node in (jobs, other)), return_exceptions=True
    )
    stored = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
    assert len({one.job_id for one in stored}) == 1
    assert Counter(one.replayed for one in stored)[False] == 1
    assert {type(outcome) for outcome in outcomes} <= {Stored, IdempotencyKeyBusy}
    assert not [outcome for outcome in outcomes if not isinstance(outcome, Stored | PenstockError)]
