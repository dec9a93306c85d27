"""Fairness: tenants take turns, however much each of them has waiting."""

from __future__ import annotations

from collections import Counter

from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import JobStore
from tests.support.job_steps import draft, enqueue, offer


async def test_a_flood_of_one_tenant_does_not_hold_up_another(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, *(draft(tenant="flood") for _ in range(50)))
    await enqueue(jobs, queue, draft(tenant="small"), draft(tenant="small"))
    offers = await offer(jobs, queue, 4)
    assert Counter(one.tenant for one in offers) == {"flood": 2, "small": 2}


async def test_tenants_take_turns_over_calls_for_one_job(jobs: JobStore, queue: JobQueue) -> None:
    tenants = ["a", "b", "c", ""]
    await enqueue(jobs, queue, *(draft(tenant=tenant) for tenant in tenants for _ in range(3)))
    turns = [(await offer(jobs, queue, 1))[0].tenant for _ in range(12)]
    for start in (0, 4, 8):
        assert sorted(turns[start : start + 4]) == sorted(tenants)
    assert turns[:4] == turns[4:8] == turns[8:]


async def test_what_does_not_divide_goes_round(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, *(draft(tenant=tenant) for tenant in "ab" for _ in range(30)))
    offers = [one for _ in range(10) for one in await offer(jobs, queue, 3)]
    assert Counter(one.tenant for one in offers) == {"a": 15, "b": 15}


async def test_what_a_tenant_does_not_need_the_others_get(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, *(draft(tenant=tenant) for tenant in ("a", *"bbb", *"ccccccccc")))
    offers = await offer(jobs, queue, 10)
    assert Counter(one.tenant for one in offers) == {"a": 1, "b": 3, "c": 6}


async def test_what_a_tenant_does_not_need_goes_to_who_has_fewer(jobs: JobStore, queue: JobQueue) -> None:
    for tenant, number in (("a", 1), ("b", 3), ("c", 3)):
        await enqueue(jobs, queue, *[draft(tenant=tenant) for _ in range(number)])
    assert Counter(one.tenant for one in await offer(jobs, queue, 5)) == {"a": 1, "b": 2, "c": 2}


async def test_urgency_counts_within_a_tenant(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, draft(tenant="a", priority=1), draft(tenant="b", priority=9), draft(tenant="b"))
    offers = await offer(jobs, queue, 2)
    assert sorted((one.tenant, one.priority) for one in offers) == [("a", 1), ("b", 9)]


async def test_more_tenants_than_one_call_looks_at_all_have_their_turn(jobs: JobStore, queue: JobQueue) -> None:
    tenants = [f"t{number:03}" for number in range(200)]
    await enqueue(jobs, queue, *(draft(tenant=tenant) for tenant in tenants for _ in range(2)))
    served = [one.tenant for _ in range(4) for one in await offer(jobs, queue, 50)]
    assert sorted(served) == tenants
    rest = [one.tenant for _ in range(4) for one in await offer(jobs, queue, 200)]
    assert sorted(rest) == tenants
