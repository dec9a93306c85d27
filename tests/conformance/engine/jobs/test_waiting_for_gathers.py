"""Waits for the end of a gather: they end with it, at their deadline, or when the service stops."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.gather import ErrorPolicy, Gather, GatherState
from penstock.domain.job_errors import GatherDoesNotExist, JobInvalid
from penstock.domain.job_request import JobRequest
from penstock.engine.jobs.changes import LOOK_MS
from penstock.engine.jobs.gathers import GatherJob, GatherRequest
from penstock.engine.jobs.jobs import Jobs
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, finish
from tests.support.stores import Home, on_postgres

UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def open_gather(jobs: Jobs, *, links: int = 1, expires_in_ms: int = 86_400_000) -> list[str]:
    """Open a gather of one member, and return its id and those of the gathers that follow."""
    then = tuple(GatherJob(QUEUE, JobRequest(task="then")) for _ in range(links))
    asked = GatherRequest(then=then, on_error=ErrorPolicy.FAIL, expires_in_ms=expires_in_ms)
    opened = await jobs.gathers.open(asked, {0: GatherJob(QUEUE, JobRequest(task="member"))}, seal=True)
    return [link.gather_id for link in opened.links]


async def begun(jobs: Jobs, gather_id: str) -> asyncio.Task[Gather]:
    """Begin to wait, and see that it does not end by itself."""
    waiting = asyncio.create_task(jobs.gathers.wait(gather_id, wait_ms=60_000))
    for _ in range(5):
        # While others look, it has its looks too.
        await jobs.gathers.find(gather_id)
    assert not waiting.done()
    return waiting


async def test_a_wait_ends_with_the_gather(jobs: Jobs) -> None:
    [gather_id] = await open_gather(jobs)
    waiting = await begun(jobs, gather_id)
    await finish(jobs)
    assert (await waiting).state is GatherState.DONE
    assert (await jobs.gathers.wait(gather_id, wait_ms=60_000)).state is GatherState.DONE


async def test_a_wait_for_the_last_gather_of_a_chain_ends_with_its_last_link(jobs: Jobs) -> None:
    *_, last = await open_gather(jobs, links=3)
    waiting = await begun(jobs, last)
    for _ in range(2):
        await finish(jobs)
    assert not waiting.done()
    await finish(jobs)
    assert (await waiting).state is GatherState.DONE


async def test_a_wait_ends_when_the_chain_is_cancelled(jobs: Jobs) -> None:
    first, _, last = await open_gather(jobs, links=3)
    waiting = await begun(jobs, last)
    await jobs.gathers.cancel(first)
    assert (await waiting).state is GatherState.CANCELLED


@pytest.mark.parametrize(
    ("wait_ms", "expires_in_ms", "state"),
    [(5_000, 86_400_000, GatherState.WAITING), (60_000, 5_000, GatherState.EXPIRED)],
)
async def test_a_wait_ends_at_its_deadline_or_when_the_gather_expires(
    jobs: Jobs, clock: ManualClock, wait_ms: int, expires_in_ms: int, state: GatherState
) -> None:
    [gather_id] = await open_gather(jobs, expires_in_ms=expires_in_ms)
    waiting = asyncio.create_task(jobs.gathers.wait(gather_id, wait_ms=wait_ms))
    while not waiting.done():
        for _ in range(3):
            # The wait has its looks, too, before time goes on: a database may take longer than the clock.
            await jobs.gathers.find(gather_id)
        await clock.advance(ms=LOOK_MS)
    assert (await waiting).state is state


async def test_a_wait_ends_when_the_service_stops(jobs: Jobs) -> None:
    [gather_id] = await open_gather(jobs)
    waiting = await begun(jobs, gather_id)
    jobs.end_waits()
    assert (await waiting).state is GatherState.WAITING


@on_postgres
async def test_the_end_on_another_node_ends_a_wait(home: Home, jobs: Jobs) -> None:
    other = (await home.engine()).jobs
    [gather_id] = await open_gather(jobs)
    waiting = await begun(jobs, gather_id)
    await finish(other)
    # The clock stands still, so this is by the other node's word.
    assert (await waiting).state is GatherState.DONE


async def test_what_cannot_be_waited_for(jobs: Jobs) -> None:
    with pytest.raises(GatherDoesNotExist):
        await jobs.gathers.wait(UNKNOWN, wait_ms=1_000)
    with pytest.raises(JobInvalid):
        await jobs.gathers.wait(UNKNOWN, wait_ms=60_001)
