"""Closing: what was asked for is done, and what comes after is refused."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import Enqueued, JobStore
from penstock.store.jobs.store import ScriptedJobs
from penstock.store.port import Store
from tests.support.job_steps import enqueue_one
from tests.support.stores import Reopen

UNDER_WAY = 10
"""More calls than are carried out at once."""


@pytest.mark.parametrize("limited", [False, True])
async def test_calls_that_wait_for_their_turn_are_carried_out(
    store: Store, jobs: JobStore, queue: JobQueue, failpoints: Failpoints, reopen: Reopen, *, limited: bool
) -> None:
    assert isinstance(jobs, ScriptedJobs)
    used = jobs.limited(JobLimits()) if limited else jobs
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    for _ in range(UNDER_WAY):
        failpoints.arm("jobs.enqueue.begun", hold)
    calls = [asyncio.create_task(enqueue_one(used, queue)) for _ in range(UNDER_WAY)]
    await reached.wait()
    closing = asyncio.create_task(store.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    answers = await asyncio.gather(*calls)
    await closing
    assert [type(answer) for answer in answers] == [Enqueued] * UNDER_WAY
    for refused in (jobs, used):
        with pytest.raises(StoreUnavailable):
            await enqueue_one(refused, queue)
        with pytest.raises(StoreUnavailable):
            await refused.counts(queue)
    again = (await reopen()).jobs
    assert sum((await again.counts(queue)).by_state.values()) == UNDER_WAY
