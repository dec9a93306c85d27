from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import JobState, Lane
from penstock.domain.job_errors import JobQueueDoesNotExist, JobRefused, ScheduleDoesNotExist, ScheduleInvalid
from penstock.domain.job_queue import JobQueue, JobQueueSettings, Rate
from penstock.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from penstock.domain.operation import JobFilter
from penstock.domain.schedule import Schedule
from penstock.store.job_port import JobStore
from penstock.testing import ManualClock
from tests.support.interleaving import lose_the_answer
from tests.support.job_lives import complete
from tests.support.job_steps import draft, enqueue, enqueue_one
from tests.support.stores import Home, Reopen, on_postgres


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    queue, _ = await jobs.create_queue("orders", JobQueueSettings())
    return queue


def schedule(name: str = "minutely", **fields: Any) -> Schedule:
    given: dict[str, Any] = {"queue": "orders", "draft": draft(), "interval_ms": MINUTE_MS}
    if "cron" in fields:
        del given["interval_ms"]
    return Schedule(name=name, **{**given, **fields})


async def fired(jobs: JobStore) -> int:
    """How many jobs there are."""
    return len(await jobs.jobs(JobFilter(), limit=500))


async def test_a_schedule_is_kept(jobs: JobStore, queue: JobQueue, clock: ManualClock, reopen: Reopen) -> None:
    asked = schedule(
        cron="0 9 * * MON-FRI", zone="Europe/Berlin", draft=draft(tags=("a",), lane=Lane(key="k", width=2))
    )
    saved = await jobs.save_schedule(asked)
    assert saved.next_at_ms is not None
    assert saved.next_at_ms > clock.now_ms()
    assert msgspec.structs.replace(saved, next_at_ms=None, revision=0) == asked
    jobs = (await reopen()).jobs
    assert await jobs.schedule("minutely") == saved


async def test_an_interval_next_fires_at_its_next_multiple(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    saved = await jobs.save_schedule(schedule())
    assert saved.next_at_ms == (clock.now_ms() // MINUTE_MS + 1) * MINUTE_MS
    assert (saved.last_at_ms, saved.last_job_id) == (None, None)


async def test_schedules_are_listed_by_name_in_pages(jobs: JobStore, queue: JobQueue) -> None:
    for name in ("c", "a", "B", "b"):
        await jobs.save_schedule(schedule(name))
    assert [one.name for one in await jobs.schedules(limit=3)] == ["B", "a", "b"]
    assert [one.name for one in await jobs.schedules(after="b", limit=3)] == ["c"]


async def test_a_schedule_is_deleted(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await jobs.save_schedule(schedule())
    await jobs.delete_schedule("minutely")
    with pytest.raises(ScheduleDoesNotExist):
        await jobs.schedule("minutely")
    with pytest.raises(ScheduleDoesNotExist):
        await jobs.delete_schedule("minutely")
    await clock.advance(seconds=60)
    assert await jobs.fire_schedules() is None
    assert await fired(jobs) == 0


async def test_one_that_makes_no_sense_is_not_saved(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(ScheduleInvalid):
        await jobs.save_schedule(schedule(cron="never"))
    with pytest.raises(JobQueueDoesNotExist):
        await jobs.save_schedule(schedule(queue="missing"))
    assert await jobs.schedules(limit=10) == []


async def test_nothing_fires_before_its_instant(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    assert await jobs.fire_schedules() is None
    saved = await jobs.save_schedule(schedule())
    assert saved.next_at_ms is not None
    assert await jobs.fire_schedules() == saved.next_at_ms - clock.now_ms()
    await clock.advance(ms=saved.next_at_ms - clock.now_ms() - 1)
    assert await jobs.fire_schedules() == 1
    assert await fired(jobs) == 0


async def test_it_fires_at_its_instant_once(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    saved = await jobs.save_schedule(schedule(draft=draft(task="sum", payload=b"[1]", tenant="acme", priority=9)))
    assert saved.next_at_ms is not None
    await clock.advance(ms=saved.next_at_ms - clock.now_ms())
    assert await jobs.fire_schedules() == MINUTE_MS
    assert await jobs.fire_schedules() == MINUTE_MS
    [job] = await jobs.jobs(JobFilter(), limit=10)
    assert (job.task, job.payload, job.tenant, job.priority) == ("sum", b"[1]", "acme", 9)
    assert job.state is JobState.QUEUED
    after = await jobs.schedule("minutely")
    assert (after.last_at_ms, after.last_job_id) == (saved.next_at_ms, job.id)
    assert after.next_at_ms == saved.next_at_ms + MINUTE_MS
    assert await complete(jobs, queue) == job.id


async def test_instants_that_nobody_saw_fire_once_together(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    saved = await jobs.save_schedule(schedule())
    await clock.advance(ms=DAY_MS)
    await jobs.fire_schedules()
    assert await fired(jobs) == 1
    after = await jobs.schedule("minutely")
    assert after.last_at_ms == saved.next_at_ms
    assert after.next_at_ms is not None
    assert 0 < after.next_at_ms - clock.now_ms() <= MINUTE_MS


async def test_every_instant_has_a_job_of_its_own(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await jobs.save_schedule(schedule())
    for number in range(1, 4):
        await clock.advance(ms=MINUTE_MS)
        await jobs.fire_schedules()
        assert await fired(jobs) == number


async def test_a_paused_schedule_does_not_fire(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await jobs.save_schedule(schedule(paused=True))
    await clock.advance(ms=HOUR_MS)
    assert await jobs.fire_schedules() is None
    saved = await jobs.save_schedule(schedule(paused=False))
    assert saved.next_at_ms is not None
    await clock.advance(ms=MINUTE_MS)
    await jobs.fire_schedules()
    assert await fired(jobs) == 1


async def test_a_schedule_is_replaced(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await jobs.save_schedule(schedule())
    await clock.advance(ms=MINUTE_MS)
    await jobs.fire_schedules()
    before = await jobs.schedule("minutely")
    other, _ = await jobs.create_queue("other", JobQueueSettings())
    replaced = await jobs.save_schedule(schedule(queue="other", interval_ms=HOUR_MS))
    assert replaced.revision > before.revision
    assert (replaced.last_at_ms, replaced.last_job_id) == (before.last_at_ms, before.last_job_id)
    assert replaced.next_at_ms == (clock.now_ms() // HOUR_MS + 1) * HOUR_MS
    await clock.advance(ms=HOUR_MS)
    await jobs.fire_schedules()
    assert len(await jobs.jobs(JobFilter(queue="other"), limit=10)) == 1
    assert await complete(jobs, other)


async def test_a_save_can_be_repeated(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    asked = schedule()
    saved = await jobs.save_schedule(asked)
    await clock.advance(ms=MINUTE_MS)
    assert await jobs.save_schedule(asked) == saved
    await jobs.fire_schedules()
    assert await fired(jobs) == 1


async def test_bounds_and_rates_and_keys_do_not_apply(jobs: JobStore, clock: ManualClock) -> None:
    settings = JobQueueSettings(depth_max=1, rate=Rate(per_second=0.001, burst=1), strict=True)
    await jobs.create_queue("narrow", settings)
    for number in range(3):
        await jobs.save_schedule(schedule(f"s{number}", queue="narrow"))
    await clock.advance(ms=MINUTE_MS)
    await jobs.fire_schedules()
    assert await fired(jobs) == 3


async def test_firing_gives_back_no_tokens(jobs: JobStore, clock: ManualClock) -> None:
    queue, _ = await jobs.create_queue("narrow", JobQueueSettings(rate=Rate(per_second=0.001, burst=3)))
    await jobs.save_schedule(schedule(queue="narrow"))
    await clock.advance(ms=MINUTE_MS)
    await enqueue(jobs, queue, draft(), draft(), draft())
    await jobs.fire_schedules()
    assert isinstance(await enqueue_one(jobs, queue), JobRefused)


async def test_a_unique_key_keeps_it_from_overtaking_itself(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await jobs.save_schedule(schedule(draft=draft(unique_key="one")))
    for _ in range(3):
        await clock.advance(ms=MINUTE_MS)
        await jobs.fire_schedules()
    [job] = await jobs.jobs(JobFilter(), limit=10)
    assert (await jobs.schedule("minutely")).last_job_id == job.id
    await complete(jobs, queue)
    await clock.advance(ms=MINUTE_MS)
    await jobs.fire_schedules()
    assert await fired(jobs) == 2


async def test_very_many_fire_in_several_calls(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    for number in range(70):
        await jobs.save_schedule(schedule(f"s{number:02}"))
    await clock.advance(ms=MINUTE_MS)
    assert await jobs.fire_schedules() == 0
    assert await jobs.fire_schedules() != 0
    assert await fired(jobs) == 70


async def test_a_firing_whose_answer_was_lost_is_not_repeated(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, failpoints: Failpoints
) -> None:
    await jobs.save_schedule(schedule())
    await clock.advance(ms=MINUTE_MS)
    lose_the_answer(failpoints, "jobs.fire_schedules.committed")
    with pytest.raises(Exception, match="the answer was lost"):
        await jobs.fire_schedules()
    await jobs.fire_schedules()
    assert await fired(jobs) == 1


@on_postgres
async def test_nodes_that_fire_at_once_fire_once(
    home: Home, jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    nodes = [jobs, *[(await home.open()).jobs for _ in range(2)]]
    for number in range(5):
        await jobs.save_schedule(schedule(f"s{number}"))
    for rounds in range(1, 6):
        await clock.advance(ms=MINUTE_MS)
        await asyncio.gather(*(node.fire_schedules() for node in nodes for _ in range(3)))
        assert await fired(jobs) == 5 * rounds


@on_postgres
async def test_a_deletion_whose_answer_was_lost_is_one(jobs: JobStore, queue: JobQueue, failpoints: Failpoints) -> None:
    await jobs.save_schedule(schedule())
    lose_the_answer(failpoints, "jobs.delete_schedule.committed", ConnectionError)
    await jobs.delete_schedule("minutely")
    with pytest.raises(ScheduleDoesNotExist):
        await jobs.delete_schedule("minutely")
