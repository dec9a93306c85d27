"""The list of workers: open streams and recent polls, of all nodes, and nobody who is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job_errors import JobInvalid
from penstock.domain.job_limits import JobLimits
from penstock.domain.limits import Limits
from penstock.domain.worker import Worker, WorkerKind
from penstock.engine.engine import Engine
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Accept, Complete
from penstock.store.port import Store
from penstock.testing import CountedIds, ManualClock
from tests.support.job_service import QUEUE, enqueue, parked, poll
from tests.support.job_streams import reader, turns
from tests.support.stores import Home, on_postgres

KEEP_ALIVE_MS, STALE_MS = JobLimits().keep_alive_ms, JobLimits().worker_stale_ms


async def listed(jobs: Jobs, **wanted: Any) -> list[Worker]:
    return (await jobs.workers.page(limit=100, **wanted)).workers


async def names(jobs: Jobs) -> list[str]:
    return [worker.name for worker in await listed(jobs)]


@contextlib.asynccontextmanager
async def node(home: Home, clock: ManualClock, ids: CountedIds) -> AsyncIterator[Jobs]:
    """One more node of the same store, with its background work."""
    async with Engine(await home.open(), clock=clock, ids=ids, limits=Limits()) as engine:
        yield engine.jobs


async def test_an_open_stream_is_listed_with_its_credit_and_what_runs(jobs: Jobs, clock: ManualClock) -> None:
    for _ in range(3):
        await enqueue(jobs)
    opened_ms = clock.now_ms()
    async with reader(jobs, 2) as stream:
        first, _second = await stream.next()
        await jobs.reports.report(Accept(first.lease))
        await clock.advance(ms=KEEP_ALIVE_MS)
        [told] = await listed(jobs)
        assert (told.name, told.kind, told.queues, told.tasks) == ("worker-1", WorkerKind.STREAM, (QUEUE,), None)
        assert (told.credit, told.running) == (2, 1)
        assert (told.since_at_ms, told.seen_at_ms) == (opened_ms, clock.now_ms())
        assert told.id != stream.stream.name
        await jobs.reports.report(Complete(first.lease))
        stream.stream.add_credit(5)
        await clock.advance(ms=KEEP_ALIVE_MS)
        [told] = await listed(jobs)
        assert (told.credit, told.running) == (7, 0)
    assert await listed(jobs) == []


async def test_polls_are_listed_until_they_are_no_longer_recent(jobs: Jobs, clock: ManualClock) -> None:
    began_ms = clock.now_ms()
    await poll(jobs, 5)
    await clock.advance(ms=1_000)
    await poll(jobs, 3)
    [told] = await listed(jobs)
    assert (told.name, told.kind, told.queues, told.running) == ("worker-1", WorkerKind.POLL, (QUEUE,), None)
    assert (told.since_at_ms, told.credit) == (began_ms, 3)
    await clock.advance(ms=STALE_MS - 1)
    assert await names(jobs) == ["worker-1"]
    await clock.advance(ms=1)
    assert await names(jobs) == []


async def test_a_poll_that_waits_is_seen_all_the_while(jobs: Jobs, clock: ManualClock) -> None:
    waiting = asyncio.create_task(poll(jobs, wait_ms=60_000))
    await parked(jobs, 1)
    await clock.advance(ms=STALE_MS + 1_000)
    [told] = await listed(jobs)
    assert told.seen_at_ms == clock.now_ms()
    waiting.cancel()
    await asyncio.wait([waiting])
    await clock.advance(ms=STALE_MS)
    assert await names(jobs) == []


async def test_polls_of_one_name_for_the_same_queues_are_one_worker(jobs: Jobs) -> None:
    for worker in ("b", "a", "b", ""):
        await poll(jobs, worker=worker)
    await jobs.offering.poll([QUEUE, "others"], count=1, worker="b")
    told = [(worker.name, worker.queues) for worker in await listed(jobs)]
    assert sorted(told) == [("", (QUEUE,)), ("a", (QUEUE,)), ("b", (QUEUE,)), ("b", (QUEUE, "others"))]
    assert [worker.queues for worker in await listed(jobs, queue="others")] == [(QUEUE, "others")]
    visible = await listed(jobs, sees_queue=lambda name: name == "others")
    assert [worker.name for worker in visible] == ["b"]


async def test_workers_come_in_pages(jobs: Jobs) -> None:
    for number in range(5):
        await poll(jobs, worker=f"w{number}:x")
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await jobs.workers.page(after=after, limit=2)
        found += [worker.name for worker in page.workers]
        after = page.after
    assert found == [f"w{number}:x" for number in range(5)]
    with pytest.raises(JobInvalid):
        await jobs.workers.page(after="nonsense", limit=2)
    with pytest.raises(JobInvalid):
        await jobs.workers.page(limit=501)


async def test_only_so_many_polling_workers_are_remembered(home: Home) -> None:
    jobs = (await home.engine(job_limits=JobLimits(polls_listed_max=3))).jobs
    for number in range(5):
        await poll(jobs, worker=f"w{number}")
    assert await names(jobs) == ["w2", "w3", "w4"]


async def test_polls_are_written_once_a_keep_alive_however_many_there_are(
    home: Home, clock: ManualClock, ids: CountedIds, failpoints: Failpoints
) -> None:
    written = 0

    async def count() -> None:
        nonlocal written
        written += 1
        failpoints.arm("jobs.note_workers.begun", count)

    async with node(home, clock, ids) as jobs:
        await turns()
        failpoints.arm("jobs.note_workers.begun", count)
        for _ in range(KEEP_ALIVE_MS // 1_000):
            for _ in range(20):
                await poll(jobs)
            await clock.advance(ms=1_000)
        # Once when it was new, and once with all.
        assert written == 2


async def test_a_node_whose_store_does_not_answer_lists_its_workers_once_it_does(
    jobs: Jobs, failpoints: Failpoints
) -> None:
    async def fail() -> None:
        raise StoreUnavailable("out of order")

    async with reader(jobs, 1):
        failpoints.arm("jobs.note_workers.begun", fail)
        with pytest.raises(StoreUnavailable):
            await listed(jobs)
        assert await names(jobs) == ["worker-1"]


async def test_a_node_that_stops_takes_its_workers_off_the_list(
    jobs: Jobs, store: Store, clock: ManualClock, ids: CountedIds
) -> None:
    async with Engine(store, clock=clock, ids=ids, limits=Limits()) as engine:
        engine.jobs.streams.open([QUEUE], credit=1, worker="streaming")
        await poll(engine.jobs, worker="polling")
        assert await names(engine.jobs) == ["polling", "streaming"]
    assert await names(jobs) == []


@on_postgres
async def test_every_node_lists_the_workers_of_all(home: Home, clock: ManualClock, ids: CountedIds) -> None:
    async with node(home, clock, ids) as one, node(home, clock, ids) as other:
        async with reader(one, 1, worker="of-one"):
            await poll(other, worker="of-other")
            await _until(one, clock, ["of-one", "of-other"])
            await _until(other, clock, ["of-one", "of-other"])
        await _until(other, clock, ["of-other"])


@on_postgres
async def test_workers_of_a_node_that_was_killed_disappear_after_the_stale_time(
    home: Home, jobs: Jobs, clock: ManualClock, ids: CountedIds
) -> None:
    killed = Engine(await home.open(), clock=clock, ids=ids, limits=Limits()).jobs
    killed.streams.open([QUEUE], credit=1, worker="streaming")
    await poll(killed, worker="polling")
    await killed.workers.save()
    # And then it does nothing any more.
    await clock.advance(ms=STALE_MS - 1)
    assert await names(jobs) == ["polling", "streaming"]
    await clock.advance(ms=1)
    assert await names(jobs) == []


async def _until(jobs: Jobs, clock: ManualClock, expected: list[str]) -> None:
    """Within a second or so every node has heard."""
    for _ in range(200):
        if await names(jobs) == expected:
            return
        await clock.advance(ms=10)
    assert await names(jobs) == expected
