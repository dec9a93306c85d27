from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.domain.job import Failure, JobState, Lane
from penstock.domain.job_errors import JobDoesNotExist, OperationDoesNotExist
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import BreakerPolicy, JobQueue, JobQueueSettings, Rate
from penstock.domain.limits import DAY_MS, HOUR_MS, REPEAT_WINDOW_MS
from penstock.domain.operation import JobFilter, OperationKind
from penstock.store.job_port import Complete, Enqueued, Fail, JobStore
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.job_lives import add, add_many, complete, die
from tests.support.job_rows import rows_left
from tests.support.job_steps import draft, report, start
from tests.support.job_sweeps import left, sweep
from tests.support.stores import Home, Opener, on_postgres


async def test_nothing_to_sweep(jobs: JobStore, queue: JobQueue) -> None:
    assert not await jobs.sweep()


async def test_finished_jobs_are_kept_for_their_retention(jobs: JobStore, clock: ManualClock) -> None:
    settings = JobQueueSettings(retention_ms=HOUR_MS, dead_retention_ms=DAY_MS)
    queue, _ = await jobs.create_queue("short", settings)
    await add(jobs, queue)
    succeeded = await complete(jobs, queue)
    cancelled = await add(jobs, queue)
    await jobs.cancel(cancelled)
    await add(jobs, queue)
    dead = await die(jobs, queue)
    await clock.advance(ms=HOUR_MS - 1)
    await sweep(jobs)
    assert await left(jobs) == [succeeded, cancelled, dead]
    await clock.advance(ms=1)
    await sweep(jobs)
    assert await left(jobs) == [dead]
    with pytest.raises(JobDoesNotExist):
        await jobs.job(succeeded)
    await clock.advance(ms=DAY_MS - HOUR_MS)
    await sweep(jobs)
    assert await left(jobs) == []
    assert sum((await jobs.counts(queue)).by_state.values()) == 0


async def test_unfinished_jobs_are_kept(jobs: JobStore, clock: ManualClock) -> None:
    queue, _ = await jobs.create_queue("short", JobQueueSettings(retention_ms=0, dead_retention_ms=0))
    running = await add(jobs, queue)
    await start(jobs, queue)
    queued = await add(jobs, queue)
    scheduled = await add(jobs, queue, delay_ms=100 * DAY_MS)
    await clock.advance(ms=60 * DAY_MS)
    await sweep(jobs)
    assert await left(jobs) == [running, queued, scheduled]


async def test_a_job_that_was_retried_is_kept(jobs: JobStore, clock: ManualClock) -> None:
    queue, _ = await jobs.create_queue("short", JobQueueSettings(dead_retention_ms=HOUR_MS))
    await add(jobs, queue)
    job_id = await die(jobs, queue)
    await clock.advance(ms=HOUR_MS)
    await jobs.retry(job_id)
    await sweep(jobs)
    assert await left(jobs) == [job_id]


async def test_a_change_of_retention_holds_for_what_is_there(jobs: JobStore, clock: ManualClock) -> None:
    queue, _ = await jobs.create_queue("short", JobQueueSettings(retention_ms=DAY_MS))
    await add(jobs, queue)
    await complete(jobs, queue)
    await jobs.save_queue(queue, settings=JobQueueSettings(retention_ms=0))
    await clock.advance(ms=REPEAT_WINDOW_MS)
    await sweep(jobs)
    assert await left(jobs) == []


async def test_a_job_goes_with_everything_about_it(
    jobs: JobStore, opener: Opener, folder: Path, clock: ManualClock
) -> None:
    settings = JobQueueSettings(
        rate=Rate(per_second=10.0, burst=10),
        rate_per_tenant=Rate(per_second=10.0, burst=10),
        breaker=BreakerPolicy(),
        key_ttl_ms=HOUR_MS,
    )
    queue, _ = await jobs.create_queue("full", settings)
    await add(
        jobs,
        queue,
        tags=("a", "b"),
        lane=Lane(key="printer", width=2),
        tenant="acme",
        unique_key="u",
        idempotency_key=b"k" * 32,
        fingerprint=b"f",
    )
    await report(jobs, Fail(await start(jobs, queue), Failure(kind="Busy")))
    await clock.advance(seconds=10)
    lease = await start(jobs, queue)
    for number in range(30):
        await jobs.publish(lease, f"e{number}", "progress", b"1")
    await report(jobs, Complete(lease, b"[1]"))
    await jobs.start_operation("op-1", OperationKind.PURGE, queue, JobFilter(), None)
    await jobs.advance_operations()
    await clock.advance(ms=settings.retention_ms + 30 * DAY_MS)
    await sweep(jobs)
    assert await rows_left(opener, folder) == {}


async def test_a_job_whose_key_is_remembered_is_kept(jobs: JobStore, clock: ManualClock) -> None:
    queue, _ = await jobs.create_queue("short", JobQueueSettings(retention_ms=1_000, key_ttl_ms=HOUR_MS))
    await add(jobs, queue)
    first = draft(idempotency_key=b"k" * 32, fingerprint=b"f")
    await jobs.enqueue(queue, [first])
    await complete(jobs, queue)
    await complete(jobs, queue)
    await clock.advance(ms=HOUR_MS - 1)
    await sweep(jobs)
    assert await left(jobs) == [first.id]
    again = draft(idempotency_key=b"k" * 32, fingerprint=b"f")
    assert await jobs.enqueue(queue, [again]) == [Enqueued(first.id, JobState.SUCCEEDED, new=False)]
    await clock.advance(ms=1)
    await sweep(jobs)
    assert await left(jobs) == []
    assert await jobs.enqueue(queue, [again]) == [Enqueued(again.id, JobState.QUEUED)]


async def test_jobs_with_remembered_keys_do_not_hide_those_behind_them(jobs: JobStore, clock: ManualClock) -> None:
    assert isinstance(jobs, ScriptedJobs)
    queue, _ = await jobs.create_queue("short", JobQueueSettings(retention_ms=1_000, key_ttl_ms=HOUR_MS))
    kept = [draft(idempotency_key=b"%032d" % number) for number in range(7)]
    await jobs.enqueue(queue, kept)
    await add_many(jobs, queue, 3)
    for _ in range(10):
        await complete(jobs, queue)
    await clock.advance(ms=REPEAT_WINDOW_MS)
    few = jobs.limited(JobLimits(sweep_rows_max=3))
    await sweep(few)
    assert await left(jobs) == [one.id for one in kept]
    # And in the next round it begins from the front again.
    await clock.advance(ms=HOUR_MS)
    await sweep(few)
    assert await left(jobs) == []


async def test_a_pass_is_bounded(jobs: JobStore, clock: ManualClock, opener: Opener, folder: Path) -> None:
    assert isinstance(jobs, ScriptedJobs)
    queue, _ = await jobs.create_queue("short", JobQueueSettings(retention_ms=0))
    await add_many(jobs, queue, 7)
    for _ in range(7):
        await complete(jobs, queue)
    await clock.advance(ms=REPEAT_WINDOW_MS)
    # The rows of two jobs: its own, its content, its attempt and its event.
    few = jobs.limited(JobLimits(sweep_rows_max=8))
    assert await few.sweep()
    assert len(await left(jobs)) == 5
    assert await few.sweep()
    assert len(await left(jobs)) == 3
    await sweep(few)
    assert await rows_left(opener, folder) == {}


async def test_many_events_go_in_several_passes_and_are_not_seen_meanwhile(
    jobs: JobStore, opener: Opener, folder: Path, clock: ManualClock
) -> None:
    assert isinstance(jobs, ScriptedJobs)
    queue, _ = await jobs.create_queue("short", JobQueueSettings(retention_ms=0))
    job_id = await add(jobs, queue)
    lease = await start(jobs, queue)
    for number in range(45):
        await jobs.publish(lease, f"e{number}", "progress", b"1")
    await report(jobs, Complete(lease))
    await clock.advance(ms=REPEAT_WINDOW_MS)
    few = jobs.limited(JobLimits(sweep_rows_max=10))
    await few.sweep()
    with pytest.raises(JobDoesNotExist):
        await jobs.events(job_id, limit=100)
    assert await rows_left(opener, folder) == {"job_event": 46, "job_attempt": 1, "job_removed": 1}
    assert await few.sweep()
    assert await rows_left(opener, folder) == {"job_event": 36, "job_attempt": 1, "job_removed": 1}
    assert await sweep(few) >= 4
    assert await rows_left(opener, folder) == {}


async def test_what_a_removed_job_left_behind_is_never_anothers(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    for number in range(30):
        await jobs.publish(lease, f"e{number}", "progress", b"1")
    await jobs.save_queue(queue, settings=JobQueueSettings(retention_ms=0))
    await report(jobs, Complete(lease))
    before = await jobs.job(lease.job_id)
    await clock.advance(ms=REPEAT_WINDOW_MS)
    await jobs.sweep()
    # The newest job is gone, but the next one does not take its position.
    after = await jobs.job(await add(jobs, queue))
    assert after.position > before.position
    lease = await start(jobs, queue)
    event = await jobs.publish(lease, "e1", "progress", b"1")
    await sweep(jobs)
    assert (await jobs.events(lease.job_id, limit=10)).events == [event]


async def test_large_jobs_go_in_several_passes(jobs: JobStore, clock: ManualClock) -> None:
    queue, _ = await jobs.create_queue("short", JobQueueSettings(retention_ms=0))
    for _ in range(4):
        await add(jobs, queue, payload=b'"%s"' % (b"x" * 8_000_000))
        await complete(jobs, queue)
    await clock.advance(ms=REPEAT_WINDOW_MS)
    assert await jobs.sweep()
    assert len(await left(jobs)) == 1
    await sweep(jobs)
    assert await left(jobs) == []


async def test_every_queue_has_its_turn(jobs: JobStore, clock: ManualClock) -> None:
    for number in range(105):
        queue, _ = await jobs.create_queue(f"queue-{number:03}", JobQueueSettings(retention_ms=0))
        if number in {0, 50, 99, 100, 104}:
            await add(jobs, queue)
            await complete(jobs, queue)
    assert len(await left(jobs)) == 5
    await clock.advance(ms=REPEAT_WINDOW_MS)
    assert await sweep(jobs) == 2
    assert await left(jobs) == []


async def test_an_expired_key_is_forgotten_and_its_job_is_not(
    jobs: JobStore, opener: Opener, folder: Path, clock: ManualClock
) -> None:
    queue, _ = await jobs.create_queue("keyed", JobQueueSettings(key_ttl_ms=HOUR_MS))
    job_id = await add(jobs, queue, idempotency_key=b"k" * 32)
    await clock.advance(ms=HOUR_MS - 1)
    await sweep(jobs)
    assert (await rows_left(opener, folder))["job_key"] == 1
    await clock.advance(ms=1)
    await sweep(jobs)
    assert "job_key" not in await rows_left(opener, folder)
    assert await left(jobs) == [job_id]


async def test_a_lane_with_a_job_is_kept(jobs: JobStore, queue: JobQueue, opener: Opener, folder: Path) -> None:
    lane = Lane(key="printer", width=1)
    await add_many(jobs, queue, 2, lane=lane)
    await complete(jobs, queue)
    await sweep(jobs)
    assert (await rows_left(opener, folder))["job_lane"] == 1
    await complete(jobs, queue)
    await sweep(jobs)
    assert "job_lane" not in await rows_left(opener, folder)
    await add_many(jobs, queue, 2, lane=lane)
    assert len((await jobs.offer(queue, count=2, worker="w")).offers) == 1


async def test_a_bucket_that_is_not_full_is_kept(
    jobs: JobStore, opener: Opener, folder: Path, clock: ManualClock
) -> None:
    queue, _ = await jobs.create_queue("slow", JobQueueSettings(rate=Rate(per_second=1.0, burst=2)))
    await add_many(jobs, queue, 2)
    await clock.advance(ms=1_999)
    await sweep(jobs)
    assert (await rows_left(opener, folder))["job_bucket"] == 1
    await clock.advance(ms=1)
    await sweep(jobs)
    assert "job_bucket" not in await rows_left(opener, folder)


async def test_old_operations_are_forgotten(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await jobs.start_operation("running", OperationKind.PURGE, queue, JobFilter(), 1)
    await jobs.start_operation("ended", OperationKind.PURGE, queue, JobFilter(), None)
    await jobs.cancel_operation("ended")
    await clock.advance(ms=30 * DAY_MS - 1)
    await sweep(jobs)
    await jobs.operation("ended")
    await clock.advance(ms=1)
    await sweep(jobs)
    with pytest.raises(OperationDoesNotExist):
        await jobs.operation("ended")
    await jobs.operation("running")


@on_postgres
async def test_two_nodes_remove_each_job_once(home: Home, jobs: JobStore, clock: ManualClock) -> None:
    other = (await home.open()).jobs
    queue, _ = await jobs.create_queue("short", JobQueueSettings(retention_ms=0))
    await add_many(jobs, queue, 60)
    for _ in range(60):
        await complete(jobs, queue)
    kept = await add_many(jobs, queue, 3)
    await clock.advance(ms=REPEAT_WINDOW_MS)
    few = JobLimits(sweep_rows_max=7)
    assert isinstance(jobs, ScriptedJobs)
    assert isinstance(other, ScriptedJobs)
    await asyncio.gather(sweep(jobs.limited(few)), sweep(other.limited(few)))
    await sweep(jobs)
    assert await left(jobs) == kept
    assert (await jobs.counts(queue)).by_state == {**dict.fromkeys(JobState, 0), JobState.QUEUED: 3}
