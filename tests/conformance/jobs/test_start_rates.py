"""Start rates: how many jobs with a key start in a second, on however many nodes."""

from __future__ import annotations

import msgspec
import pytest

from penstock.domain.job import JobState, Lane, StartRate
from penstock.domain.job_queue import BreakerPolicy, JobQueue, StartRateSettings
from penstock.domain.limits import DAY_MS, HOUR_MS
from penstock.store.job_port import Accept, Complete, JobStore, Release
from penstock.testing import ManualClock
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
    report,
)
from tests.support.stores import Home, Opener, PostgresDatabase

TEN = StartRate(key="api", per_second=10)
DAILY = StartRate(key="api", per_second=1 / (DAY_MS / 1_000))


async def starts(jobs: list[JobStore], queue: JobQueue, clock: ManualClock, *, ms: int, step_ms: int = 10) -> list[int]:
    """Have workers at all nodes ask for many jobs every few ms, and return when jobs were offered, from now on."""
    began_ms = clock.now_ms()
    found: list[int] = []
    while clock.now_ms() - began_ms < ms:
        for node in jobs:
            offers = await offer(node, queue, 20)
            found += [clock.now_ms() - began_ms] * len(offers)
            for one in offers:
                await report(node, Accept(one.lease))
                await report(node, Complete(one.lease))
        await clock.advance(ms=step_ms)
    return found


async def test_ten_a_second_over_three_nodes_is_ten_a_second(home: Home, opener: Opener, clock: ManualClock) -> None:
    """On SQLite there is one node."""
    nodes = [(await home.open()).jobs for _ in range(3 if isinstance(opener, PostgresDatabase) else 1)]
    first = nodes[0]
    queue = await make_queue(first)
    await enqueue(first, queue, *(draft(start_rate=TEN) for _ in range(60)))
    found = await starts(nodes, queue, clock, ms=4_000)
    assert found == list(range(0, 4_000, 100))


async def test_others_go_ahead_of_those_who_have_to_wait(jobs: JobStore, queue: JobQueue) -> None:
    slow = await enqueue(jobs, queue, *(draft(priority=9, start_rate=DAILY) for _ in range(30)))
    plain = await enqueue(jobs, queue, *(draft(priority=0) for _ in range(3)))
    assert await offered_ids(jobs, queue, 2) == [slow[0], plain[0]]
    assert await offered_ids(jobs, queue, 10) == plain[1:]


async def test_a_poll_is_told_when_the_next_may_start_and_no_sooner(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    first, second = await enqueue(jobs, queue, draft(start_rate=TEN), draft(start_rate=TEN))
    made = await jobs.offer(queue, count=10, worker=WORKER)
    assert ([one.lease.job_id for one in made.offers], made.next_in_ms) == ([first], 100)
    await clock.advance(ms=99)
    made = await jobs.offer(queue, count=10, worker=WORKER)
    assert (made.offers, made.next_in_ms) == ([], 1)
    await clock.advance(ms=1)
    assert await offered_ids(jobs, queue) == [second]


async def test_a_burst_starts_at_once_after_a_pause(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    rate = StartRate(key="api", per_second=2, burst=5)
    await enqueue(jobs, queue, *(draft(start_rate=rate) for _ in range(30)))
    assert await starts([jobs], queue, clock, ms=2_000) == [0] * 5 + [500, 1_000, 1_500]
    await clock.advance(seconds=60)
    assert len(await offer(jobs, queue, 20)) == 5


async def test_the_most_urgent_of_those_who_wait_starts_next(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await enqueue(jobs, queue, *(draft(start_rate=TEN, priority=4) for _ in range(20)))
    assert len(await offer(jobs, queue)) == 1
    [urgent] = await enqueue(jobs, queue, draft("other", start_rate=TEN, priority=9))
    await clock.advance(ms=100)
    assert await offered_ids(jobs, queue) == [urgent]


async def test_a_rate_is_one_tenants_unless_the_queue_shares_it(jobs: JobStore) -> None:
    tenants = ("a", "a", "b", "b", "c", "c")
    for shared, number in ((False, 3), (True, 1)):
        rates = {"api": StartRateSettings(per_second=1, shared=shared)}
        queue = await make_queue(jobs, f"shared-{shared}", start_rates=rates)
        await enqueue(jobs, queue, *(draft(tenant=tenant, start_rate=TEN) for tenant in tenants))
        assert len(await offer(jobs, queue)) == number


async def test_the_rate_of_a_key_is_what_its_first_job_asked_for(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    fast = StartRate(key="api", per_second=1_000)
    await enqueue(jobs, queue, draft(start_rate=TEN))
    assert len(await offer(jobs, queue)) == 1
    await enqueue(jobs, queue, *(draft(start_rate=fast) for _ in range(40)))
    assert await starts([jobs], queue, clock, ms=300) == [100, 200]
    for one in await offer(jobs, queue, 100):
        await jobs.cancel(one.lease.job_id)
    # After an hour the key is new.
    for _ in range(40):
        await clock.advance(seconds=1)
        for one in await offer(jobs, queue, 100):
            await report(jobs, Accept(one.lease))
            await report(jobs, Complete(one.lease))
    await clock.advance(ms=HOUR_MS + 1_000)
    while await jobs.sweep():
        pass
    await enqueue(jobs, queue, *(draft(start_rate=fast) for _ in range(40)))
    assert await starts([jobs], queue, clock, ms=5, step_ms=1) == [0, 1, 2, 3, 4]


async def test_the_settings_of_the_queue_override_what_jobs_ask_for(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await enqueue(jobs, queue, *(draft(start_rate=DAILY) for _ in range(40)))
    assert len(await offer(jobs, queue)) == 1
    made = await jobs.offer(queue, count=1, worker=WORKER)
    assert (made.offers, made.next_in_ms) == ([], queue.settings.offer_ms)
    await clock.advance(ms=1_000)
    rates = {"api": StartRateSettings(per_second=10)}
    saved = await jobs.save_queue(queue, settings=msgspec.structs.replace(queue.settings, start_rates=rates))
    assert saved is not None
    assert await starts([jobs], saved, clock, ms=500) == [0, 100, 200, 300, 400]
    gone = await jobs.save_queue(saved, settings=queue.settings)
    assert gone is not None
    await clock.advance(seconds=60)
    assert await starts([jobs], gone, clock, ms=500) == [0]


@pytest.mark.parametrize("how", ["release", "lapse", "cancel"])
async def test_an_offer_that_does_not_start_gives_its_token_back(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, how: str
) -> None:
    ids = await enqueue(jobs, queue, draft(start_rate=DAILY), draft(start_rate=DAILY))
    [one] = await offer(jobs, queue)
    if how == "release":
        await report(jobs, Release(one.lease))
    elif how == "cancel":
        await jobs.cancel(one.lease.job_id)
    else:
        await clock.advance(ms=queue.settings.offer_ms)
        await advance(jobs)
    assert await offered_ids(jobs, queue) == [ids[how == "cancel"]]
    assert await offer(jobs, queue) == []


async def test_an_offer_that_is_made_again_and_does_not_start_gives_its_token_back(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await enqueue(jobs, queue, draft(start_rate=DAILY), draft(start_rate=DAILY))
    [first] = (await jobs.offer(queue, count=5, worker=WORKER, turn=7)).offers
    await clock.advance(ms=1_000)
    [again] = await jobs.offer_again([queue], count=5, turn=7)
    assert again.lease.job_id == first.lease.job_id
    assert await offered_ids(jobs, queue) == []
    await report(jobs, Release(again.lease))
    assert await offered_ids(jobs, queue) == [first.lease.job_id]
    assert await offered_ids(jobs, queue) == []


async def test_what_was_accepted_is_a_start_though_it_is_released(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, draft(start_rate=DAILY), draft(start_rate=DAILY))
    [one] = await offer(jobs, queue)
    await report(jobs, Accept(one.lease))
    await report(jobs, Release(one.lease))
    assert await offer(jobs, queue) == []


async def test_a_token_that_comes_back_late_does_not_break_the_rate(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await enqueue(jobs, queue, *(draft(start_rate=TEN) for _ in range(10)))
    [late] = await offer(jobs, queue)
    await clock.advance(ms=100)
    assert len(await offer(jobs, queue)) == 1
    await clock.advance(ms=50)
    await report(jobs, Release(late.lease))
    assert await offer(jobs, queue) == []
    await clock.advance(ms=50)
    assert await offered_ids(jobs, queue) == [late.lease.job_id]


async def test_retries_and_delayed_jobs_are_starts_too(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    rate = StartRate(key="api", per_second=0.1)
    failed, _ = await enqueue(jobs, queue, draft(start_rate=rate), draft(start_rate=rate, delay_ms=2_000))
    [one] = await offer(jobs, queue)
    await report(jobs, Accept(one.lease))
    await fail(jobs, one.lease)
    await clock.advance(ms=5_000)
    assert await offer(jobs, queue) == []
    assert await counted(jobs, queue) == {JobState.QUEUED: 2}
    await clock.advance(ms=5_000)
    assert await offered_ids(jobs, queue) == [failed]


async def test_a_lane_and_a_rate_both_hold(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    for lane in (Lane(key="narrow"), Lane(key="group", ordered=True)):
        rate = StartRate(key=lane.key, per_second=10)
        await enqueue(jobs, queue, *(draft(lane=lane, start_rate=rate) for _ in range(3)))
        [one] = await offer(jobs, queue)
        await clock.advance(ms=100)
        assert await offer(jobs, queue) == [], "the lane is full"
        await report(jobs, Accept(one.lease))
        await report(jobs, Complete(one.lease))
        assert await starts([jobs], queue, clock, ms=500) == [0, 100]


async def test_workers_of_one_task_do_not_use_up_or_hold_the_tokens_of_another(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await enqueue(jobs, queue, *(draft("a", start_rate=TEN) for _ in range(5)))
    [other] = await enqueue(jobs, queue, draft("b", start_rate=TEN))
    made = await jobs.offer(queue, count=5, worker=WORKER, tasks=("b",))
    assert [one.lease.job_id for one in made.offers] == [other]
    await clock.advance(ms=100)
    made = await jobs.offer(queue, count=5, worker=WORKER, tasks=("b",))
    assert made.offers == []
    assert len(await offer(jobs, queue)) == 1


async def test_what_a_breaker_holds_up_takes_no_token(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, "fragile", breaker=BreakerPolicy(failures_max=1, open_ms=1_000))
    await enqueue(jobs, queue, *(draft(lane=Lane(key="down", width=5), start_rate=DAILY) for _ in range(2)))
    [one] = await enqueue(jobs, queue, draft(lane=Lane(key="down", width=5), priority=9))
    [lease] = [found.lease for found in await offer(jobs, queue, 1)]
    assert lease.job_id == one
    await report(jobs, Accept(lease))
    await fail(jobs, lease)
    assert await offer(jobs, queue) == []
    await clock.advance(ms=1_000)
    assert len(await offer(jobs, queue)) == 1


async def test_a_paused_queue_starts_nothing_and_goes_on_at_its_rate(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await enqueue(jobs, queue, *(draft(start_rate=TEN) for _ in range(5)))
    paused = await jobs.save_queue(queue, paused=True)
    assert paused is not None
    assert await starts([jobs], paused, clock, ms=300) == []
    resumed = await jobs.save_queue(paused, paused=False)
    assert resumed is not None
    assert await starts([jobs], resumed, clock, ms=200) == [0, 100]
