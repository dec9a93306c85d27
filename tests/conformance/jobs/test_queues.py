from __future__ import annotations

import asyncio

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job_errors import JobQueueDoesNotExist, JobStateConflict
from penstock.domain.job_queue import BreakerPolicy, JobQueue, JobQueueSettings, Rate
from penstock.domain.operation import JobFilter
from penstock.domain.schedule import Schedule
from penstock.store.job_port import JobStore
from penstock.testing import ManualClock
from tests.support.job_lives import add, add_many, complete
from tests.support.job_steps import draft
from tests.support.stores import Home, Reopen, on_postgres

EVERYTHING = JobQueueSettings(
    depth_max=7,
    rate=Rate(per_second=1.5, burst=3),
    rate_per_tenant=Rate(per_second=0.1, burst=1),
    breaker=BreakerPolicy(failures_max=2),
    strict=True,
    retention_ms=1,
)


async def test_a_queue_keeps_its_settings(jobs: JobStore, clock: ManualClock, reopen: Reopen) -> None:
    queue, created = await jobs.create_queue("orders", EVERYTHING)
    assert created
    assert queue.name == "orders"
    assert queue.settings == EVERYTHING
    assert not queue.paused
    assert queue.created_at_ms == clock.now_ms()
    jobs = (await reopen()).jobs
    assert await jobs.find_queue("orders") == queue


async def test_a_queue_that_is_there_is_not_changed_by_creating_it(jobs: JobStore, queue: JobQueue) -> None:
    assert await jobs.create_queue(queue.name, EVERYTHING) == (queue, False)


async def test_a_missing_queue(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(JobQueueDoesNotExist):
        await jobs.find_queue("order")


async def test_queues_are_listed_by_name_in_pages(jobs: JobStore) -> None:
    for name in ("c", "B", "a", "é", "b"):
        await jobs.create_queue(name, JobQueueSettings())
    first = await jobs.list_queues(limit=3)
    assert [queue.name for queue in first] == ["B", "a", "b"]
    assert [queue.name for queue in await jobs.list_queues(after="b", limit=3)] == ["c", "é"]


async def test_settings_are_saved(jobs: JobStore, queue: JobQueue) -> None:
    saved = await jobs.save_queue(queue, settings=EVERYTHING)
    assert saved is not None
    assert saved.settings == EVERYTHING
    assert saved.revision > queue.revision
    assert not saved.paused
    assert await jobs.find_queue(queue.name) == saved


async def test_a_queue_is_paused_and_resumed(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    paused = await jobs.save_queue(queue, paused=True)
    assert paused is not None
    assert paused.paused
    assert paused.settings == queue.settings
    assert (await jobs.offer(paused, count=1, worker="w")).offers == []
    resumed = await jobs.save_queue(paused, paused=False)
    assert resumed is not None
    assert len((await jobs.offer(resumed, count=1, worker="w")).offers) == 1


async def test_who_waits_is_told_when_a_queue_is_resumed(jobs: JobStore, queue: JobQueue) -> None:
    await add_many(jobs, queue, 3)
    paused = await jobs.save_queue(queue, paused=True)
    assert paused is not None
    told: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    jobs.listen(lambda queue_id, number: told.put_nowait((queue_id, number)), lambda _: None)
    await jobs.save_queue(paused, paused=False)
    assert await told.get() == (queue.id, 3)


async def test_who_saves_what_another_has_changed_is_turned_away(jobs: JobStore, queue: JobQueue) -> None:
    saved = await jobs.save_queue(queue, paused=True)
    assert await jobs.save_queue(queue, settings=EVERYTHING) is None
    assert await jobs.find_queue(queue.name) == saved


async def test_a_save_can_be_repeated(jobs: JobStore, queue: JobQueue) -> None:
    saved = await jobs.save_queue(queue, settings=EVERYTHING, paused=True)
    assert await jobs.save_queue(queue, settings=EVERYTHING, paused=True) == saved


async def test_a_queue_that_is_gone_is_not_saved(jobs: JobStore, queue: JobQueue) -> None:
    await jobs.delete_queue(queue)
    with pytest.raises(JobQueueDoesNotExist):
        await jobs.save_queue(queue, paused=True)


async def test_an_empty_queue_is_deleted(jobs: JobStore, queue: JobQueue) -> None:
    await jobs.delete_queue(queue)
    with pytest.raises(JobQueueDoesNotExist):
        await jobs.find_queue(queue.name)
    await jobs.delete_queue(queue)
    again, created = await jobs.create_queue(queue.name, JobQueueSettings())
    assert created
    assert again.id != queue.id
    assert sum((await jobs.counts(again)).by_state.values()) == 0


async def test_a_queue_with_a_job_is_not_deleted(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    await complete(jobs, queue)
    with pytest.raises(JobStateConflict):
        await jobs.delete_queue(queue)
    assert await jobs.find_queue(queue.name) == queue


async def test_a_queue_that_a_schedule_feeds_is_not_deleted(jobs: JobStore, queue: JobQueue) -> None:
    schedule = Schedule(name="hourly", queue=queue.name, draft=draft(), cron="@hourly")
    await jobs.save_schedule(schedule)
    with pytest.raises(JobStateConflict):
        await jobs.delete_queue(queue)
    await jobs.delete_schedule("hourly")
    await jobs.delete_queue(queue)


async def test_nothing_is_enqueued_to_a_queue_that_is_gone(jobs: JobStore, queue: JobQueue) -> None:
    await jobs.delete_queue(queue)
    with pytest.raises(JobQueueDoesNotExist):
        await jobs.enqueue(queue, [draft()])


@on_postgres
async def test_a_queue_is_deleted_or_enqueued_to_but_not_both(home: Home, jobs: JobStore) -> None:
    other = (await home.open(failpoints=Failpoints())).jobs
    for number in range(20):
        queue, _ = await jobs.create_queue(f"queue-{number}", JobQueueSettings())
        deleted, enqueued = await asyncio.gather(
            jobs.delete_queue(queue), other.enqueue(queue, [draft()]), return_exceptions=True
        )
        if isinstance(enqueued, JobQueueDoesNotExist):
            assert deleted is None
        else:
            assert isinstance(deleted, JobStateConflict)
            assert [job.queue for job in await jobs.jobs(JobFilter(queue=queue.name), limit=10)] == [queue.name]
