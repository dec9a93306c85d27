"""Lanes: groups keep their order, concurrency keys their width."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.job import Failure, JobState, Lane
from penstock.domain.job_queue import JobQueue
from penstock.domain.operation import JobFilter, OperationKind
from penstock.store.job_port import Accept, Complete, Fail, JobStore, Release, Report, Snooze
from penstock.testing import ManualClock
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    fail,
    finish,
    group,
    offer,
    offered_ids,
    report,
    start,
    state_of,
)
from tests.support.stores import Home, on_postgres

NARROW = Lane(key="api", width=2)


async def in_group(jobs: JobStore, queue: JobQueue, number: int = 3) -> list[str]:
    return await enqueue(jobs, queue, *(draft(lane=group("g"), priority=place % 10) for place in range(number)))


async def test_a_group_goes_one_by_one_in_order(jobs: JobStore, queue: JobQueue) -> None:
    ids = await in_group(jobs, queue)
    ids += await in_group(jobs, queue, 2)
    for job_id in ids:
        [one] = await offer(jobs, queue)
        assert one.lease.job_id == job_id
        await report(jobs, Accept(one.lease))
        assert await offer(jobs, queue) == []
        await finish(jobs, one.lease)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 5}


async def test_groups_do_not_hold_up_each_other(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, draft(lane=group("a")), draft(lane=group("b")), draft(lane=group("a")), draft())
    assert await offered_ids(jobs, queue) == [ids[0], ids[1], ids[3]]


async def test_a_group_and_a_key_of_one_name_are_two_lanes(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, draft(lane=group("x")), draft(lane=Lane(key="x")))
    assert await offered_ids(jobs, queue) == ids


async def test_a_retry_holds_up_its_group(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    first, second, _ = await in_group(jobs, queue)
    failed = await fail(jobs, await start(jobs, queue))
    assert failed.state is JobState.RETRYING
    assert await offer(jobs, queue) == []
    await clock.advance(seconds=1)
    lease = await start(jobs, queue)
    assert lease.job_id == first
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [second]


async def test_a_snoozed_job_holds_up_its_group(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    first, _, _ = await in_group(jobs, queue)
    await report(jobs, Snooze(await start(jobs, queue), 5_000))
    assert await offer(jobs, queue) == []
    await clock.advance(seconds=5)
    assert await offered_ids(jobs, queue) == [first]


async def test_a_delayed_job_holds_up_those_behind_it(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    first, second, third = await enqueue(
        jobs,
        queue,
        draft(lane=group("g"), delay_ms=1_000),
        draft(lane=group("g")),
        draft(lane=group("g"), delay_ms=9_000),
    )
    assert await offer(jobs, queue) == []
    await clock.advance(seconds=1)
    for job_id in (first, second):
        lease = await start(jobs, queue)
        assert lease.job_id == job_id
        await finish(jobs, lease)
    assert await offer(jobs, queue) == []
    await clock.advance(seconds=8)
    assert await offered_ids(jobs, queue) == [third]


async def test_the_next_of_a_group_may_be_overdue(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    _, second = await enqueue(jobs, queue, draft(lane=group("g")), draft(lane=group("g"), delay_ms=1_000))
    lease = await start(jobs, queue)
    await clock.advance(seconds=2)
    await advance(jobs)
    assert await offer(jobs, queue) == []
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [second]


@pytest.mark.parametrize("ended", ["dead", "cancelled", "cancelled in line", "lost"])
async def test_whatever_ends_a_job_lets_the_next_go(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, ended: str
) -> None:
    first, second, third = await in_group(jobs, queue)
    if ended == "cancelled in line":
        await jobs.cancel(second)
        await jobs.cancel(first)
        assert await offered_ids(jobs, queue) == [third]
        return
    lease = await start(jobs, queue)
    if ended == "dead":
        await fail(jobs, lease, permanent=True)
    elif ended == "cancelled":
        await jobs.cancel(first)
        await report(jobs, Release(lease))
    else:
        for _ in range(5):
            await clock.advance(ms=queue.settings.lease_ms)
            await advance(jobs)
            if (await jobs.job(first)).state is not JobState.DEAD:
                await clock.advance(seconds=60)
                assert (await start(jobs, queue)).job_id == first
        assert (await jobs.job(first)).state is JobState.DEAD
    assert await offered_ids(jobs, queue) == [second]


async def test_a_dead_job_that_comes_back_is_next_in_its_group(jobs: JobStore, queue: JobQueue) -> None:
    first, second, third = await in_group(jobs, queue)
    await fail(jobs, await start(jobs, queue), permanent=True)
    lease = await start(jobs, queue)
    assert lease.job_id == second
    assert (await jobs.retry(first)).state is JobState.QUEUED
    assert await offer(jobs, queue) == []
    await finish(jobs, lease)
    lease = await start(jobs, queue)
    assert lease.job_id == first
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [third]


@pytest.mark.parametrize("way", ["retry", "requeue"])
@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.SCHEDULED, JobState.RETRYING])
async def test_a_job_that_comes_back_goes_before_one_that_only_waits(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, state: JobState, way: str
) -> None:
    first, second, third = await in_group(jobs, queue)
    await fail(jobs, await start(jobs, queue), permanent=True)
    if state is not JobState.QUEUED:
        lease = await start(jobs, queue)
        await report(jobs, Snooze(lease, 1_000) if state is JobState.SCHEDULED else Fail(lease, Failure(kind="x")))
    assert await state_of(jobs, second) is state
    if way == "retry":
        await jobs.retry(first)
    else:
        await jobs.start_operation("op", OperationKind.REQUEUE, queue, JobFilter(), rate=None)
        assert await jobs.advance_operations() is None
    for job_id in (first, second, third):
        lease = await start(jobs, queue)
        assert lease.job_id == job_id
        await clock.advance(seconds=1)
        await advance(jobs)
        assert await offer(jobs, queue) == []
        await finish(jobs, lease)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 3}


@pytest.mark.parametrize("way", ["decline", "forget", "release", "snooze", "fail", "lose"])
async def test_whoever_lets_go_lets_one_that_came_back_before_it_go_first(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, way: str
) -> None:
    first, second, _ = await in_group(jobs, queue)
    await jobs.cancel(first)
    [one] = await offer(jobs, queue)
    assert one.lease.job_id == second
    if way not in ("decline", "forget"):
        await report(jobs, Accept(one.lease))
    await jobs.retry(first)
    assert await offer(jobs, queue) == []
    ends: dict[str, Report] = {
        "decline": Release(one.lease),
        "release": Release(one.lease),
        "snooze": Snooze(one.lease, 1_000),
        "fail": Fail(one.lease, Failure(kind="x")),
    }
    if way in ends:
        await report(jobs, ends[way])
    else:
        await clock.advance(ms=queue.settings.offer_ms if way == "forget" else queue.settings.lease_ms)
    lease = await start(jobs, queue)
    assert lease.job_id == first
    await clock.advance(seconds=1)
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [second]


async def test_a_job_comes_back_to_a_lane_that_was_swept(jobs: JobStore, queue: JobQueue) -> None:
    [first] = await in_group(jobs, queue, 1)
    await fail(jobs, await start(jobs, queue), permanent=True)
    while await jobs.sweep():
        pass
    assert (await jobs.retry(first)).state is JobState.QUEUED
    [second] = await in_group(jobs, queue, 1)
    lease = await start(jobs, queue)
    assert lease.job_id == first
    assert await offer(jobs, queue) == []
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [second]


async def test_a_key_lets_as_many_go_as_it_is_wide_the_most_urgent_first(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, *(draft(lane=NARROW, priority=priority) for priority in (4, 4, 1, 9, 4)))
    first, second = await offer(jobs, queue)
    assert {first.lease.job_id, second.lease.job_id} == {ids[0], ids[1]}
    await report(jobs, Accept(first.lease))
    await report(jobs, Complete(first.lease))
    assert await offered_ids(jobs, queue) == [ids[3]]
    # Given back, it keeps its place.
    await report(jobs, Release(second.lease))
    lease = await start(jobs, queue)
    assert lease.job_id == second.lease.job_id
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [ids[4]]


async def test_a_retry_lets_others_of_its_key_go_ahead(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    lane = Lane(key="api")
    first, second, third = await enqueue(jobs, queue, *(draft(lane=lane) for _ in range(3)))
    await fail(jobs, await start(jobs, queue))
    lease = await start(jobs, queue)
    assert lease.job_id == second
    await clock.advance(seconds=1)
    assert await offer(jobs, queue) == []
    await finish(jobs, lease)
    lease = await start(jobs, queue)
    assert lease.job_id == third, "it has been due for longer"
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [first]


@pytest.mark.parametrize("lane", [group("g"), Lane(key="api")])
async def test_the_only_job_of_a_lane_comes_back_to_it(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, lane: Lane
) -> None:
    [job_id] = await enqueue(jobs, queue, draft(lane=lane, delay_ms=1_000))
    for _ in range(3):
        await clock.advance(seconds=10)
        await advance(jobs)
        lease = await start(jobs, queue)
        assert lease.job_id == job_id
        await fail(jobs, lease)


async def test_a_delayed_job_takes_no_place_of_its_key(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    lane = Lane(key="api")
    delayed, other = await enqueue(jobs, queue, draft(lane=lane, delay_ms=1_000), draft(lane=lane))
    lease = await start(jobs, queue)
    assert lease.job_id == other
    await clock.advance(seconds=1)
    assert await offer(jobs, queue) == []
    await finish(jobs, lease)
    assert await offered_ids(jobs, queue) == [delayed]


async def test_several_reports_on_one_lane_in_one_call(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, *(draft(lane=NARROW) for _ in range(6)))
    leases = [one.lease for one in await offer(jobs, queue)]
    reports = [step for lease in leases for step in (Accept(lease), Complete(lease))]
    answers = await jobs.report(reports)
    assert [getattr(answer, "state", answer) for answer in answers] == [JobState.RUNNING, JobState.SUCCEEDED] * 2
    assert await offered_ids(jobs, queue) == ids[2:4]


@on_postgres
async def test_order_holds_where_two_nodes_enqueue_and_work(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    other = (await home.open()).jobs
    done: dict[str, list[int]] = {"a": [], "b": []}
    running: set[str] = set()
    enqueued: list[str] = []

    async def produce(node: JobStore, number: int) -> None:
        one = draft(lane=group("ab"[number % 2]), payload=b"%d" % number)
        await enqueue(node, queue, one)
        enqueued.append(one.id)

    async def work(node: JobStore) -> None:
        while sum(map(len, done.values())) < 40:
            for one in await offer(node, queue, 3):
                name = (await node.job(one.lease.job_id)).lane
                assert name is not None
                assert name.key not in running
                running.add(name.key)
                await report(node, Accept(one.lease))
                done[name.key].append((await node.job(one.lease.job_id)).position)
                running.discard(name.key)
                await finish(node, one.lease)

    async with asyncio.timeout(60):
        await asyncio.gather(
            *(produce([jobs, other][number % 3 % 2], number) for number in range(40)),
            *(work(node) for node in [jobs, other] * 3),
        )
    assert [positions == sorted(positions) for positions in done.values()] == [True, True]
    assert len(set(done["a"] + done["b"])) == 40
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 40}
