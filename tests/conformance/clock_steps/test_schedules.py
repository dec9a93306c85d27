"""Schedules follow the wall clock, and fire once for an instant that comes again."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.job_queue import JobQueue
from penstock.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from penstock.domain.operation import JobFilter
from penstock.domain.schedule import Schedule
from penstock.engine.engine import Engine
from penstock.store.job_port import JobStore
from penstock.store.port import Store
from tests.support.job_steps import draft, make_queue
from tests.support.machine import Machine
from tests.support.stores import Reopen, on_sqlite, working

pytestmark = on_sqlite


@pytest.fixture
def jobs(store: Store) -> JobStore:
    return store.jobs


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    return await make_queue(jobs)


def schedule(**fields: Any) -> Schedule:
    return Schedule(name="s", queue="mail", draft=draft(), **fields)


async def fired(jobs: JobStore) -> int:
    return len(await jobs.jobs(JobFilter(), limit=500))


async def run_until(jobs: JobStore, machine: Machine, wall_ms: int) -> None:
    """Let time pass and schedules fire until the wall clock shows an instant."""
    await machine.wait_until_noticed()
    while machine.wall_ms <= wall_ms:
        next_in_ms = await jobs.fire_schedules()
        assert next_in_ms is not None
        await machine.wait(ms=min(next_in_ms, wall_ms - machine.wall_ms) + 1)
    await jobs.fire_schedules()


async def save(jobs: JobStore, **fields: Any) -> int:
    """Save a schedule, and return when it fires first."""
    saved = await jobs.save_schedule(schedule(**fields))
    assert saved.next_at_ms is not None
    return saved.next_at_ms


async def test_it_fires_soon_when_the_clock_is_set_beyond_its_instant(
    engine: Engine, jobs: JobStore, queue: JobQueue, machine: Machine
) -> None:
    async with working(engine):
        await save(jobs, cron="0 6 * * *")
        await machine.wait(seconds=1)
        machine.step(hours=24)
        await machine.wait(ms=2 * MINUTE_MS)
        for _ in range(100):
            await machine.wait(ms=1)
    assert await fired(jobs) == 1


@pytest.mark.parametrize("fields", [{"interval_ms": MINUTE_MS}, {"cron": "*/5 * * * *"}, {"cron": "@hourly"}])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_one_that_fires_all_day_goes_on_when_the_clock_is_set_back(
    jobs: JobStore, queue: JobQueue, machine: Machine, reopen: Reopen, fields: dict[str, Any], *, restarted: bool
) -> None:
    await run_until(jobs, machine, await save(jobs, **fields))
    assert await fired(jobs) == 1
    machine.step(hours=-12)
    if restarted:
        jobs = (await reopen()).jobs
    await run_until(jobs, machine, machine.wall_ms + HOUR_MS)
    assert await fired(jobs) >= 2


@pytest.mark.parametrize("fields", [{"interval_ms": MINUTE_MS}, {"cron": "*/5 * * * *"}, {"cron": "0 23 * * *"}])
async def test_an_instant_that_comes_again_soon_is_not_fired_for_twice(
    jobs: JobStore, queue: JobQueue, machine: Machine, fields: dict[str, Any]
) -> None:
    instant_ms = await save(jobs, **fields)
    await run_until(jobs, machine, instant_ms)
    machine.step(seconds=-10)
    assert machine.wall_ms < instant_ms
    await run_until(jobs, machine, instant_ms)
    assert await fired(jobs) == 1


@pytest.mark.parametrize(("hours", "times"), [(-2, 1), (-24, 2), (-24 * 3_650, 2)])
async def test_one_that_names_its_hour_fires_again_if_the_clock_is_set_back_by_more_than_three_hours(
    jobs: JobStore, queue: JobQueue, machine: Machine, hours: int, times: int
) -> None:
    await run_until(jobs, machine, await save(jobs, cron="0 23 * * *"))
    machine.step(hours=hours)
    await run_until(jobs, machine, machine.wall_ms + DAY_MS)
    assert await fired(jobs) == times


async def test_what_was_planned_by_a_clock_far_ahead_is_planned_again(
    jobs: JobStore, queue: JobQueue, machine: Machine, reopen: Reopen
) -> None:
    machine.step(hours=24 * 3_650)
    await save(jobs, cron="0 23 * * *")
    machine.step(hours=-24 * 3_650)
    jobs = (await reopen()).jobs
    await run_until(jobs, machine, machine.wall_ms + DAY_MS)
    assert await fired(jobs) == 1
