"""A flood of jobs is turned away: what is taken, what is refused, and how seldom the store is asked for that."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job_errors import JobRefused, TooMany
from penstock.domain.job_queue import Rate
from penstock.engine.jobs.enqueueing import Stored
from penstock.engine.jobs.jobs import Jobs
from penstock.engine.jobs.refusals import FLOOD_MS, FULL_MS, FULL_TIMES
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, Pause, accept, enqueue, make_queue


async def test_a_flood_beyond_the_rate_is_turned_away_without_asking_the_store_each_time(
    jobs: Jobs, clock: ManualClock, failpoints: Failpoints
) -> None:
    await make_queue(jobs, rate=Rate(per_second=10, burst=2))
    await enqueue(jobs)
    await enqueue(jobs)
    with pytest.raises(JobRefused) as refused:
        await enqueue(jobs)
    assert (refused.value.why, refused.value.retry_after_ms) == (TooMany.RATE_GLOBAL, 100)
    fail_next(failpoints)
    await clock.advance(ms=60)
    for _ in range(100):
        with pytest.raises(JobRefused) as refused:
            await enqueue(jobs)
        assert (refused.value.why, refused.value.retry_after_ms) == (TooMany.RATE_GLOBAL, 40)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs, idempotency_key="may be known already")
    await clock.advance(ms=40)
    await enqueue(jobs)


async def test_an_id_may_be_known_already_but_not_on_its_first_try(jobs: Jobs, failpoints: Failpoints) -> None:
    await make_queue(jobs, rate=Rate(per_second=10, burst=1))
    assert await flood(jobs, 2) == (1, 1)
    fail_next(failpoints)
    job_id = "00000000-0000-7000-8000-000000000001"
    with pytest.raises(JobRefused):
        await enqueue(jobs, id=job_id, first_try=True)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs, id=job_id)


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
    fail_next(failpoints)
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
