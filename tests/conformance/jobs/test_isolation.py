"""Tenants beside each other in one queue: what one names is its own, unless the queue shares it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.domain.job import JobState, Lane, OnDuplicate
from penstock.domain.job_queue import BreakerPolicy, JobQueue, LaneSettings
from penstock.domain.operation import JobFilter, OperationKind
from penstock.store.job_port import Enqueued, JobStore, Release
from tests.support.job_steps import (
    draft,
    enqueue,
    enqueue_one,
    fail,
    finish,
    group,
    make_queue,
    offer,
    offered_ids,
    report,
    start,
)
from tests.support.stores import Home, on_postgres

ACME, BOLT, NOBODY = "acme", "bolt", ""
TENANTS = (ACME, BOLT, NOBODY)
API = Lane(key="api")


async def test_a_unique_key_is_of_its_tenant(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, *(draft(tenant=tenant, unique_key="u") for tenant in TENANTS))
    for tenant, job_id in zip(TENANTS, ids, strict=True):
        again = await enqueue_one(jobs, queue, draft(tenant=tenant, unique_key="u"))
        assert again == Enqueued(job_id, JobState.QUEUED, new=False, by_unique_key=True)


async def test_a_job_replaces_no_other_tenants(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, *(draft(tenant=tenant, unique_key="u") for tenant in TENANTS))
    one = draft(tenant=ACME, unique_key="u", on_duplicate=OnDuplicate.REPLACE)
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED, replaced=ids[0])
    assert sorted(await offered_ids(jobs, queue)) == sorted([one.id, *ids[1:]])


@pytest.mark.parametrize("way", ["retry", "requeue"])
async def test_a_job_comes_back_while_another_tenant_has_its_unique_key(
    jobs: JobStore, queue: JobQueue, way: str
) -> None:
    [dead] = await enqueue(jobs, queue, draft(tenant=ACME, unique_key="u"))
    await fail(jobs, await start(jobs, queue), permanent=True)
    await enqueue(jobs, queue, draft(tenant=BOLT, unique_key="u"))
    if way == "retry":
        await jobs.retry(dead)
    else:
        await jobs.start_operation("op", OperationKind.REQUEUE, queue, JobFilter(), rate=None)
        await jobs.advance_operations()
    assert (await jobs.job(dead)).state is JobState.QUEUED


async def test_dead_jobs_of_two_tenants_with_one_unique_key_both_come_back(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, *(draft(tenant=tenant, unique_key="u") for tenant in (ACME, BOLT)))
    for _ in ids:
        await fail(jobs, await start(jobs, queue), permanent=True)
    await jobs.start_operation("op", OperationKind.REQUEUE, queue, JobFilter(), rate=None)
    await jobs.advance_operations()
    assert [(await jobs.job(job_id)).state for job_id in ids] == [JobState.QUEUED] * 2


@pytest.mark.parametrize("lane", [group("g"), API])
async def test_a_lane_is_of_its_tenant(jobs: JobStore, queue: JobQueue, lane: Lane) -> None:
    first = await enqueue(jobs, queue, *(draft(tenant=tenant, lane=lane) for tenant in TENANTS))
    second = await enqueue(jobs, queue, *(draft(tenant=tenant, lane=lane) for tenant in TENANTS))
    leases = [await start(jobs, queue) for _ in TENANTS]
    assert sorted(lease.job_id for lease in leases) == sorted(first)
    assert await offer(jobs, queue) == []
    await finish(jobs, leases[0])
    [next_id] = await offered_ids(jobs, queue)
    assert second.index(next_id) == first.index(leases[0].job_id)


async def test_a_job_of_one_tenant_does_not_widen_the_lane_of_another(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, *(draft(tenant=ACME, lane=API) for _ in range(3)))
    await enqueue(jobs, queue, *(draft(tenant=BOLT, lane=Lane(key="api", width=2)) for _ in range(3)))
    assert sorted(one.tenant for one in await offer(jobs, queue)) == [ACME, BOLT, BOLT]


async def test_a_breaker_of_a_key_is_of_its_tenant(jobs: JobStore) -> None:
    queue = await make_queue(jobs, breaker=BreakerPolicy(failures_max=3))
    await enqueue(jobs, queue, *(draft(tenant=ACME, lane=API) for _ in range(6)))
    for _ in range(3):
        await fail(jobs, await start(jobs, queue))
        # The queue's own breaker is everybody's, so it is kept closed.
        [good] = await enqueue(jobs, queue, draft(tenant=ACME, priority=9))
        lease = await start(jobs, queue)
        assert lease.job_id == good
        await finish(jobs, lease)
    assert await offer(jobs, queue) == []
    [other] = await enqueue(jobs, queue, draft(tenant=BOLT, lane=API))
    assert await offered_ids(jobs, queue) == [other]


# -- widths ---------------------------------------------------------------------------------------


async def test_the_first_job_of_a_key_decides_its_width_while_any_is_unfinished(
    jobs: JobStore, queue: JobQueue
) -> None:
    await enqueue(jobs, queue, draft(lane=API), draft(lane=Lane(key="api", width=3)))
    await enqueue(jobs, queue, *(draft(lane=Lane(key="api", width=3)) for _ in range(2)))
    for _ in range(4):
        lease = await start(jobs, queue)
        assert await offer(jobs, queue) == []
        await finish(jobs, lease)
    # All are finished, so the key is new again, swept or not.
    await enqueue(jobs, queue, *(draft(lane=Lane(key="api", width=3)) for _ in range(4)))
    assert len(await offer(jobs, queue)) == 3


async def test_a_queue_decides_the_width_of_a_key(jobs: JobStore) -> None:
    queue = await make_queue(jobs, lanes={"api": LaneSettings(width=2)})
    await enqueue(jobs, queue, *(draft(tenant=ACME, lane=Lane(key="api", width=9)) for _ in range(5)))
    await enqueue(jobs, queue, draft(tenant=ACME, lane=Lane(key="other", width=1)))
    await enqueue(jobs, queue, *(draft(tenant=ACME, lane=group("api")) for _ in range(2)))
    assert len(await offer(jobs, queue)) == 2 + 1 + 1


async def test_a_width_that_a_queue_changes_counts_at_once(jobs: JobStore) -> None:
    queue = await make_queue(jobs, lanes={"api": LaneSettings(width=1)})
    await enqueue(jobs, queue, *(draft(tenant=tenant, lane=API) for tenant in (ACME, BOLT) for _ in range(5)))
    assert len(await offer(jobs, queue)) == 2
    queue = await changed(jobs, queue, {"api": LaneSettings(width=3)})
    leases = [await start(jobs, queue) for _ in range(4)]
    assert await offer(jobs, queue) == []
    queue = await changed(jobs, queue, {"api": LaneSettings(width=1)})
    for lease in leases:
        await finish(jobs, lease)
    assert await offer(jobs, queue) == []
    # Without a setting it is as wide as the first job of the key asked for.
    await changed(jobs, queue, {})
    assert await offer(jobs, queue) == []


async def test_a_width_that_a_queue_loses_is_the_first_jobs(jobs: JobStore) -> None:
    queue = await make_queue(jobs, lanes={"api": LaneSettings(width=1)})
    await enqueue(jobs, queue, *(draft(lane=Lane(key="api", width=4)) for _ in range(5)))
    assert len(await offer(jobs, queue)) == 1
    queue = await changed(jobs, queue, {})
    assert len(await offer(jobs, queue)) == 3


async def changed(jobs: JobStore, queue: JobQueue, lanes: dict[str, LaneSettings]) -> JobQueue:
    saved = await jobs.save_queue(queue, settings=msgspec.structs.replace(queue.settings, lanes=lanes))
    assert saved is not None
    return saved


# -- shared on purpose ----------------------------------------------------------------------------


async def test_a_key_that_a_queue_shares_is_one_lane_of_all_tenants(jobs: JobStore) -> None:
    queue = await make_queue(jobs, lanes={"api": LaneSettings(width=2, shared=True)})
    for _ in range(2):
        await enqueue(jobs, queue, *(draft(tenant=tenant, lane=API) for tenant in TENANTS))
    for left in range(6, 0, -2):
        leases = [await start(jobs, queue) for _ in range(2)]
        assert await offer(jobs, queue) == [], left
        for lease in leases:
            await finish(jobs, lease)
    assert await offer(jobs, queue) == []


async def test_a_shared_key_has_one_breaker_for_all_tenants(jobs: JobStore) -> None:
    shared = {"api": LaneSettings(width=9, shared=True)}
    queue = await make_queue(jobs, breaker=BreakerPolicy(failures_max=2), lanes=shared)
    await enqueue(jobs, queue, *(draft(tenant=tenant, lane=API) for tenant in (ACME, ACME, BOLT)))
    await fail(jobs, await start(jobs, queue))
    # The queue's own breaker is kept closed.
    [good] = await enqueue(jobs, queue, draft(tenant=NOBODY))
    while (lease := await start(jobs, queue)).job_id != good:
        await report(jobs, Release(lease))
    await finish(jobs, lease)
    await fail(jobs, await start(jobs, queue))
    assert await offer(jobs, queue) == []


async def test_a_job_comes_back_to_the_lane_that_it_was_enqueued_to(jobs: JobStore) -> None:
    queue = await make_queue(jobs, lanes={"api": LaneSettings(width=1, shared=True)})
    ids = await enqueue(jobs, queue, *(draft(tenant=tenant, lane=API) for tenant in (ACME, BOLT)))
    for _ in ids:
        await fail(jobs, await start(jobs, queue), permanent=True)
    while await jobs.sweep():
        pass
    for job_id in ids:
        await jobs.retry(job_id)
    assert len(await offer(jobs, queue)) == 1


@on_postgres
async def test_two_tenants_at_two_nodes_keep_their_unique_keys_apart(
    home: Home, jobs: JobStore, queue: JobQueue
) -> None:
    nodes = [jobs, (await home.open()).jobs]
    drafts = [draft(tenant=TENANTS[number % 3], unique_key="u", lane=group("g")) for number in range(60)]
    answers = await asyncio.gather(*(enqueue_one(nodes[number % 2], queue, one) for number, one in enumerate(drafts)))
    found: dict[str, set[str]] = {tenant: set() for tenant in TENANTS}
    for one, answer in zip(drafts, answers, strict=True):
        assert isinstance(answer, Enqueued)
        found[one.tenant].add(answer.job_id)
    assert [len(ids) for ids in found.values()] == [1, 1, 1]
    assert len(await offer(jobs, queue)) == 3
