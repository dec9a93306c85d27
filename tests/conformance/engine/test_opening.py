"""`Engine.open`: one call that gives queues, messages, moves and jobs on a store, and takes them down again."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.errors import StoreInUse, StoreUnavailable
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_request import JobRequest
from penstock.engine import Engine
from penstock.store.job_port import Release
from tests.support.job_service import QUEUE, accept, enqueue, make_queue, poll
from tests.support.queues import queue_name
from tests.support.stores import Opener, on_sqlite

UPKEEP = {"sweeper", "mover", "advancer of jobs", "scheduler", "operator", "sweeper of jobs"}


@pytest.fixture
async def url(opener: Opener) -> str:
    return await opener.url()


async def test_everything_is_there_and_durable(url: str) -> None:
    async with Engine.open(url) as engine:
        await engine.queues.create(queue_name("orders"), {}, {})
        job = await engine.jobs.enqueueing.enqueue("mail", JobRequest(task="greet"))
        secret = engine.secret
        await engine.ping()
    async with Engine.open(url) as engine:
        assert engine.secret == secret
        assert (await engine.queues.find(queue_name("orders"))).name == queue_name("orders")
        assert (await engine.jobs.looking.job(job.job_id)).task == "greet"


async def test_the_store_is_closed_in_the_end(url: str) -> None:
    async with Engine.open(url) as engine:
        pass
    with pytest.raises(StoreUnavailable):
        await engine.ping()


async def test_the_store_is_closed_after_a_failure_too(url: str) -> None:
    opened = Engine.open(url)
    engine = await opened.__aenter__()
    assert not await opened.__aexit__(KeyError, KeyError(), None)
    with pytest.raises(StoreUnavailable):
        await engine.ping()


@on_sqlite
async def test_a_file_has_one_engine(url: str) -> None:
    async with Engine.open(url):
        with pytest.raises(StoreInUse):
            await Engine.open(url).__aenter__()
    async with Engine.open(url):
        pass


async def test_the_limits_of_jobs_reach_the_store(url: str) -> None:
    limits = JobLimits(attempts_shown_max=2)
    async with Engine.open(url, job_limits=limits, upkeep=False) as engine:
        assert engine.jobs.limits is limits
        await make_queue(engine.jobs)
        stored = await enqueue(engine.jobs)
        for _ in range(3):
            offer = await accept(engine.jobs)
            await engine.jobs.reports.report(Release(offer.lease))
        # How many attempts are read is the store's own to decide.
        assert [each.number for each in (await engine.jobs.looking.job(stored.job_id)).history] == [2, 3]


@pytest.mark.parametrize("upkeep", [True, False])
async def test_background_work_is_done_only_where_it_is_wanted(url: str, upkeep: bool) -> None:
    before = {task.get_name() for task in asyncio.all_tasks()}
    async with Engine.open(url, upkeep=upkeep) as engine:
        names = {task.get_name() for task in asyncio.all_tasks()} - before
        assert names & UPKEEP == (UPKEEP if upkeep else set())
        # Without it, all that a caller asks for still works.
        await make_queue(engine.jobs, name=QUEUE)
        await enqueue(engine.jobs)
        assert len(await poll(engine.jobs)) == 1
    assert not UPKEEP & {task.get_name() for task in asyncio.all_tasks()}
