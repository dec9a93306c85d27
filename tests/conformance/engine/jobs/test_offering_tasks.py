"""Workers wait for jobs of some tasks: woken by those, and not kept busy by others."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Offer
from penstock.domain.job_errors import JobInvalid
from penstock.engine.jobs.jobs import Jobs
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, enqueue, parked

WAIT_MS = 30_000


def polling(jobs: Jobs, *tasks: str) -> asyncio.Task[list[Offer]]:
    return asyncio.create_task(jobs.offering.poll([QUEUE], count=1, worker="w", wait_ms=WAIT_MS, tasks=tasks))


async def test_a_poll_is_woken_by_a_job_of_its_task_though_others_wait_before_it(jobs: Jobs) -> None:
    first = polling(jobs, "a")
    await parked(jobs, 1)
    second = polling(jobs, "b")
    await parked(jobs, 2)
    stored = await enqueue(jobs, "b")
    [one] = await second
    assert one.lease.job_id == stored.job_id
    assert not first.done()
    stored = await enqueue(jobs, "a")
    [one] = await first
    assert one.lease.job_id == stored.job_id


async def test_polls_for_the_same_tasks_are_served_in_the_order_of_arrival(jobs: Jobs) -> None:
    first = polling(jobs, "a", "b")
    await parked(jobs, 1)
    second = polling(jobs, "b", "a")
    await parked(jobs, 2)
    await enqueue(jobs, "b")
    assert len(await first) == 1
    assert not second.done()
    await enqueue(jobs, "a")
    assert len(await second) == 1


async def test_a_poll_is_woken_when_a_delayed_job_of_its_task_is_due(jobs: Jobs, clock: ManualClock) -> None:
    await enqueue(jobs, "a", delay_ms=1_000)
    await enqueue(jobs, "b", delay_ms=2_000)
    waiting = polling(jobs, "b")
    await parked(jobs, 1)
    await clock.advance(ms=1_000)
    await parked(jobs, 1)
    await clock.advance(ms=1_000)
    [one] = await waiting
    assert one.task == "b"


async def test_a_poll_does_not_look_again_and_again_because_of_other_jobs(
    jobs: Jobs, clock: ManualClock, failpoints: Failpoints
) -> None:
    for _ in range(5):
        await enqueue(jobs, "a")
    looks = 0

    def count() -> None:
        nonlocal looks
        looks += 1
        failpoints.arm("jobs.offer.begun", count)

    failpoints.arm("jobs.offer.begun", count)
    waiting = polling(jobs, "b")
    await parked(jobs, 1)
    for _ in range(20):
        await clock.advance(ms=1_000)
    assert looks == 1
    await enqueue(jobs, "b")
    assert len(await waiting) == 1


async def test_a_stream_is_offered_jobs_of_its_tasks_only(jobs: Jobs) -> None:
    await enqueue(jobs, "a")
    stored = await enqueue(jobs, "b")
    stream = jobs.streams.open([QUEUE], credit=5, worker="w", tasks=["b", "c"])
    [one] = await anext(stream.batches())
    assert one.lease.job_id == stored.job_id
    stream.close()


@pytest.mark.parametrize("tasks", [["\0"], ["x" * 201], [f"t{number}" for number in range(501)], [""]])
async def test_tasks_that_make_no_sense_are_refused(jobs: Jobs, tasks: list[str]) -> None:
    with pytest.raises(JobInvalid, match="tasks"):
        await jobs.offering.poll([QUEUE], count=1, tasks=tasks)
    with pytest.raises(JobInvalid, match="tasks"):
        jobs.streams.open([QUEUE], credit=1, tasks=tasks)
