"""Gathers whose members end at once, on several nodes, and calls whose answers are lost: one continuation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.gather import ErrorPolicy, GatherState, NewMember
from penstock.domain.job import IN_FLIGHT, WAITING, Failure, JobState, Lease
from penstock.domain.job_errors import JobStateConflict
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Accept, Complete, Enqueued, Fail, JobStore
from tests.support.gathers import (
    assert_continued,
    assert_stored,
    continuations,
    members,
    new_gather,
    open_gather,
)
from tests.support.interleaving import lose_the_answer
from tests.support.job_service import Pause
from tests.support.job_steps import counted, group, make_queue, offer
from tests.support.stores import Home, Opener, PostgresDatabase, on_postgres

MEMBERS = 1_000
BATCH = 500


async def fill(jobs: JobStore, queue: JobQueue, count: int, **fields: Any) -> str:
    """Open a gather of many, in slices."""
    new = new_gather(queue, **fields)
    assert_stored(await jobs.open_gather(new, [], seal=False))
    for first in range(0, count, BATCH):
        own = members(new.id, queue, min(BATCH, count - first), first=first)
        assert_stored(await jobs.fill_gather(new.id, own, seal=first + BATCH >= count))
    return new.id


async def start_all(jobs: JobStore, queue: JobQueue, count: int) -> list[Lease]:
    leases: list[Lease] = []
    while len(leases) < count:
        taken = [one.lease for one in await offer(jobs, queue, BATCH)]
        assert taken
        await jobs.report([Accept(lease) for lease in taken])
        leases += taken
    return leases


async def test_a_thousand_members_that_end_at_once_make_one_continuation(jobs: JobStore, queue: JobQueue) -> None:
    await check_at_once([jobs], queue)


@on_postgres
async def test_a_thousand_members_that_end_at_once_on_three_nodes_make_one_continuation(
    home: Home, jobs: JobStore, queue: JobQueue
) -> None:
    nodes = [jobs, (await home.open()).jobs, (await home.open()).jobs]
    await check_at_once(nodes, queue)


async def check_at_once(nodes: list[JobStore], queue: JobQueue) -> None:
    jobs = nodes[0]
    gathers = [await fill(jobs, queue, MEMBERS // 2, on_error=policy) for policy in ErrorPolicy]
    leases = await start_all(jobs, queue, MEMBERS)
    async with asyncio.timeout(50):
        # Each by itself, so that many transactions of all nodes wait for the same rows.
        await asyncio.gather(
            *(nodes[number % len(nodes)].report([Complete(lease, b"1")]) for number, lease in enumerate(leases))
        )
    for gather_id in gathers:
        gather = await assert_continued(jobs, gather_id)
        assert (gather.total, gather.succeeded, gather.failed) == (MEMBERS // 2, MEMBERS // 2, 0)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: MEMBERS, JobState.QUEUED: 2}


@pytest.mark.parametrize("verb", ["report", "cancel", "open_gather", "fill_gather"])
async def test_a_call_whose_answer_is_lost_after_the_commit_is_repeated(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints, verb: str
) -> None:
    new = new_gather(queue, on_error=ErrorPolicy.COLLECT)
    first, second = members(new.id, queue, 1), members(new.id, queue, 1, first=1)
    lose_the_answer(failpoints, f"jobs.{verb}.committed")

    async def insist(call: Callable[[], Awaitable[object]]) -> None:
        with contextlib.suppress(StoreUnavailable):
            await call()
        await call()

    await insist(lambda: jobs.open_gather(new, first, seal=False))
    await insist(lambda: jobs.fill_gather(new.id, second, seal=True))
    [lease, _] = [one.lease for one in await offer(jobs, queue)]
    await insist(lambda: jobs.report([Accept(lease)]))
    if verb == "report":
        lose_the_answer(failpoints, "jobs.report.committed")
    await insist(lambda: jobs.report([Complete(lease)]))
    await insist(lambda: jobs.cancel(second[0].draft.id))
    gather = await assert_continued(jobs, new.id)
    assert (gather.total, gather.succeeded, gather.failed) == (2, 1, 1)


async def test_the_last_member_ends_while_the_gather_is_being_sealed(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints
) -> None:
    for held, other in (("report", "fill_gather"), ("fill_gather", "report")):
        gather_id, _ = await open_gather(jobs, queue, 1, seal=False)
        [lease] = await start_all(jobs, queue, 1)
        calls = {"report": jobs.report([Complete(lease)]), "fill_gather": jobs.fill_gather(gather_id, [], seal=True)}
        pause = Pause(failpoints, f"jobs.{held}.begun")
        first = asyncio.ensure_future(calls[held])
        await pause.reached.wait()
        await calls[other]
        assert await continuations(jobs, gather_id) == []
        pause.go_on.set()
        await first
        await assert_continued(jobs, gather_id)
        await jobs.cancel((await jobs.gather(gather_id)).continuation_id or "")


@on_postgres
async def test_two_nodes_seal_end_and_cancel_at_once(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    other = (await home.open()).jobs
    for number in range(20):
        gather_id, _ = await open_gather(jobs, queue, 1, seal=False)
        [lease] = await start_all(jobs, queue, 1)
        more = members(gather_id, queue, 1, first=1) if number % 2 else []
        outcomes = await asyncio.gather(
            jobs.report([Complete(lease)]),
            other.fill_gather(gather_id, more, seal=True),
            other.cancel_gather(gather_id) if number % 3 == 0 else asyncio.sleep(0),
            return_exceptions=True,
        )
        assert all(isinstance(one, list | JobStateConflict) or not isinstance(one, BaseException) for one in outcomes)
        gather = await jobs.gather(gather_id)
        found = await continuations(jobs, gather_id)
        assert gather.succeeded == 1
        assert len(found) == (gather.state is GatherState.DONE)
        assert gather.state is not GatherState.OPEN
        while offers := await offer(jobs, queue):
            for one in offers:
                await jobs.report([Accept(one.lease), Complete(one.lease)])
        if gather.state is GatherState.WAITING:
            await assert_continued(jobs, gather_id)


@on_postgres
async def test_fills_of_one_place_at_once_store_one_job(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    other = (await home.open()).jobs
    gather_id, _ = await open_gather(jobs, queue, 0, seal=False)
    filled = await asyncio.gather(
        *(
            node.fill_gather(gather_id, _named(gather_id, queue, n), seal=True)
            for n, node in enumerate([jobs, other] * 3)
        )
    )
    stored = [sum(isinstance(answer, Enqueued) for answer in one.members) for one in filled]
    assert sorted(stored) == [0, 0, 0, 0, 0, 20]
    assert (await jobs.gather(gather_id)).total == 20
    assert await counted(jobs, queue) == {JobState.QUEUED: 20}


def _named(gather_id: str, queue: JobQueue, number: int) -> list[NewMember]:
    """Members for the same places, with ids of their own."""
    named = ([*members(gather_id, queue, 1, first=index, id=f"{number}-{index}")] for index in range(20))
    return [one for own in named for one in own]


@on_postgres
@pytest.mark.slow
async def test_nodes_do_not_wait_for_each_other_whatever_lanes_and_continuations_share(
    home: Home, jobs: JobStore, opener: Opener
) -> None:
    """Members and continuations of many gathers stand in the same lanes of strict and plain queues, on three nodes."""
    nodes = [jobs, (await home.open()).jobs, (await home.open()).jobs]
    retry = RetryPolicy(attempts_max=3, backoff_ms=0)
    queues = [await make_queue(jobs, name, retry=retry, strict=name == "b") for name in ("a", "b", "c")]
    gathers: list[str] = []
    for number in range(24):
        new = new_gather(
            queues[number % 3],
            on_error=ErrorPolicy.COLLECT,
            then={"lane": group(f"g{number % 2}"), "priority": number % 10},
        )
        own = [
            one
            for index in range(6)
            for one in members(
                new.id,
                queues[(number + index) % 3],
                1,
                first=index,
                lane=group(f"g{index % 2}") if index % 3 else None,
                idempotency_key=f"{number}.{index}".encode().ljust(32, b"."),
            )
        ]
        assert_stored(await nodes[number % 3].open_gather(new, own, seal=True))
        gathers.append(new.id)

    async def work(node: JobStore, number: int) -> None:
        while True:
            done = 0
            for queue in queues[number % 3 :] + queues[: number % 3]:
                for one in await offer(node, queue, 7, worker=f"w{number}"):
                    done += 1
                    await node.report([Accept(one.lease)])
                    failure = Fail(one.lease, Failure(kind="x", permanent=True))
                    await node.report([failure if done % 3 == 0 else Complete(one.lease)])
            await node.advance()
            ends = [await node.counts(queue) for queue in queues]
            if all(found.by_state[state] == 0 for found in ends for state in WAITING | IN_FLIGHT):
                return

    async with asyncio.timeout(50):
        await asyncio.gather(*(work(node, number) for number, node in enumerate(nodes * 2)))
    for gather_id in gathers:
        gather = await assert_continued(jobs, gather_id)
        assert (gather.total, gather.remaining) == (6, 0)
    await home.close()  # What sessions have counted is known once they have ended.
    assert isinstance(opener, PostgresDatabase)
    connection = await asyncpg.connect(opener.dsn)
    statement = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    deadlocks = await connection.fetchval(statement)
    await connection.close()
    assert deadlocks == 0
