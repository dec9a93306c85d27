"""Workers that take some tasks only: what they are offered, and that other jobs do not get in their way."""

from __future__ import annotations

import asyncio

from penstock.domain.job import Lane
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import JobStore, Release
from penstock.store.jobs.due import HELD_MS
from penstock.testing import ManualClock
from tests.support.job_steps import WORKER, draft, enqueue, offer, report


async def taken(jobs: JobStore, queue: JobQueue, *tasks: str, count: int = 10) -> list[str]:
    offers = (await jobs.offer(queue, count=count, worker=WORKER, tasks=tasks)).offers
    assert {one.task for one in offers} <= set(tasks)
    return [one.lease.job_id for one in offers]


async def test_a_worker_is_offered_jobs_of_its_tasks_only(jobs: JobStore, queue: JobQueue) -> None:
    mail, fax, sms = await enqueue(jobs, queue, draft("mail"), draft("fax"), draft("sms"))
    assert await taken(jobs, queue, "letter") == []
    assert await taken(jobs, queue, "letter", "sms") == [sms]
    assert [one.lease.job_id for one in await offer(jobs, queue)] == [mail, fax]


async def test_the_jobs_of_several_tasks_come_in_one_order(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    ids = []
    for task, priority in (("b", 4), ("a", 4), ("c", 9), ("b", 4), ("x", 9), ("a", 9)):
        ids += await enqueue(jobs, queue, draft(task, priority=priority))
        await clock.advance(ms=1)
    assert await taken(jobs, queue, "a", "b", "c", count=4) == [ids[2], ids[5], ids[0], ids[1]]
    assert await taken(jobs, queue, "a", "b", "c") == [ids[3]]


async def test_tenants_take_turns_among_those_who_have_such_jobs(jobs: JobStore, queue: JobQueue) -> None:
    for number in range(200):
        await enqueue(jobs, queue, draft("other", tenant=f"t{number:03}"))
    for tenant in ("t000", "t099", "t199"):
        await enqueue(jobs, queue, *(draft("mail", tenant=tenant) for _ in range(4)))
    offers = (await jobs.offer(queue, count=6, worker=WORKER, tasks=("fax", "mail"))).offers
    assert sorted(one.tenant for one in offers) == ["t000", "t000", "t099", "t099", "t199", "t199"]


async def test_turns_of_one_kind_of_worker_do_not_disturb_those_of_another(jobs: JobStore, queue: JobQueue) -> None:
    for tenant in ("x", "y"):
        await enqueue(jobs, queue, *(draft(task, tenant=tenant) for task in ("a", "b") for _ in range(4)))
    served = []
    for _ in range(2):
        for task in ("a", "b"):
            [one] = (await jobs.offer(queue, count=1, worker=WORKER, tasks=(task,))).offers
            served.append((task, one.tenant))
    assert sorted(served) == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


async def test_jobs_of_other_tasks_are_no_reason_to_look_again(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, *(draft("mail") for _ in range(3)))
    nothing = await jobs.offer(queue, count=1, worker=WORKER, tasks=("fax",))
    assert (nothing.offers, nothing.next_in_ms) == ([], None)
    await enqueue(jobs, queue, draft("fax", delay_ms=5_000))
    nothing = await jobs.offer(queue, count=1, worker=WORKER, tasks=("fax",))
    assert (nothing.offers, nothing.next_in_ms) == ([], 5_000)


async def test_calls_for_other_tasks_at_the_same_time_are_not_mixed(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, *(draft(task) for _ in range(6) for task in ("a", "b", "c")))
    kinds = [("a",), ("b",), ("a", "b"), ("c",)]

    async def one(kind: tuple[str, ...]) -> str:
        while not (made := await jobs.offer(queue, count=1, worker=WORKER, tasks=kind)).offers:
            # Somebody else held it for a moment, and may have left it.
            assert made.next_in_ms == HELD_MS
        return made.offers[0].task

    for kind, task in zip(kinds * 3, await asyncio.gather(*map(one, kinds * 3)), strict=True):
        assert task in kind


async def test_a_lane_gives_its_place_whatever_the_task(jobs: JobStore, queue: JobQueue) -> None:
    lane = Lane(key="narrow")
    first, second = await enqueue(jobs, queue, draft("a", lane=lane), draft("b", lane=lane))
    assert await taken(jobs, queue, "b") == []
    [one] = await offer(jobs, queue)
    assert one.lease.job_id == first
    await jobs.cancel(first)
    assert await taken(jobs, queue, "b") == [second]


async def test_what_is_given_back_is_offered_to_a_worker_of_its_task(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue, draft("a"))
    [one] = (await jobs.offer(queue, count=1, worker=WORKER, tasks=("a",))).offers
    await report(jobs, Release(one.lease))
    assert await taken(jobs, queue, "b", "c") == []
    assert await taken(jobs, queue, "a", "b") == [job_id]
