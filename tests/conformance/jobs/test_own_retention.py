"""Retention of single jobs: longer or shorter than their queue's, but for dead ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.domain.job import JobState
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.domain.limits import DAY_MS, HOUR_MS, REPEAT_WINDOW_MS
from penstock.store.job_port import JobStore
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.gathers import assert_stored, members, new_gather, run_members
from tests.support.job_lives import add, add_many, complete, die
from tests.support.job_rows import rows_left
from tests.support.job_steps import make_queue
from tests.support.job_sweeps import left, sweep
from tests.support.stores import Opener


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    return await make_queue(jobs, "hourly", retention_ms=HOUR_MS, dead_retention_ms=DAY_MS)


async def test_a_job_is_kept_for_its_own_retention(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    short = await add(jobs, queue, retention_ms=HOUR_MS // 2)
    plain = await add(jobs, queue)
    long = await add(jobs, queue, retention_ms=2 * HOUR_MS)
    shown = [(await jobs.job(job_id)).retention_ms for job_id in (short, plain, long)]
    assert shown == [HOUR_MS // 2, HOUR_MS, 2 * HOUR_MS]
    for _ in range(2):
        await complete(jobs, queue)
    await jobs.cancel(long)
    for kept in ([short, plain, long], [plain, long], [long], [long], []):
        await sweep(jobs)
        assert await left(jobs) == kept
        await clock.advance(ms=HOUR_MS // 2)
    assert sum((await jobs.counts(queue)).by_state.values()) == 0


async def test_every_job_is_kept_for_repeats(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    job_id = await add(jobs, queue, retention_ms=0)
    await complete(jobs, queue)
    await clock.advance(ms=REPEAT_WINDOW_MS - 1)
    await sweep(jobs)
    assert await left(jobs) == [job_id]
    await clock.advance(ms=1)
    await sweep(jobs)
    assert await left(jobs) == []


async def test_dead_jobs_are_kept_as_the_queue_says(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    short = await add(jobs, queue, retention_ms=0)
    await die(jobs, queue)
    long = await add(jobs, queue, retention_ms=7 * DAY_MS)
    await die(jobs, queue)
    await clock.advance(ms=DAY_MS - 1)
    await sweep(jobs)
    assert await left(jobs) == [short, long]
    await clock.advance(ms=1)
    await sweep(jobs)
    assert await left(jobs) == []


async def test_a_change_of_the_queue_leaves_it_alone(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    job_id = await add(jobs, queue, retention_ms=2 * HOUR_MS)
    await complete(jobs, queue)
    await jobs.save_queue(queue, settings=JobQueueSettings(retention_ms=0))
    await clock.advance(ms=HOUR_MS)
    await sweep(jobs)
    assert await left(jobs) == [job_id]


async def test_what_is_remembered_or_gathered_is_kept(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    keyed = await add(jobs, queue, retention_ms=0, idempotency_key=b"k" * 32)
    new = new_gather(queue)
    own = members(new.id, queue, 1, retention_ms=0)
    assert_stored(await jobs.open_gather(new, own, seal=False))
    await run_members(jobs, queue, 2)
    await clock.advance(ms=HOUR_MS)
    await sweep(jobs)
    assert await left(jobs) == [keyed, own[0].draft.id]


async def test_those_that_are_kept_do_not_hide_others(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, opener: Opener, folder: Path
) -> None:
    assert isinstance(jobs, ScriptedJobs)
    kept = await add_many(jobs, queue, 7, retention_ms=DAY_MS)
    await add_many(jobs, queue, 3)
    await add_many(jobs, queue, 7, retention_ms=2 * HOUR_MS)
    for _ in range(17):
        await complete(jobs, queue)
    few = jobs.limited(JobLimits(sweep_rows_max=3))
    await clock.advance(ms=2 * HOUR_MS)
    await sweep(few)
    assert await left(jobs) == kept
    assert (await jobs.counts(queue)).by_state[JobState.SUCCEEDED] == 7
    await clock.advance(ms=DAY_MS)
    await sweep(few)
    assert await rows_left(opener, folder) == {}
