"""Expiry together with gathers, schedules and breakers."""

from __future__ import annotations

from penstock.domain.gather import ErrorPolicy
from penstock.domain.job import EXPIRED, JobState, Lane
from penstock.domain.job_queue import BreakerPolicy, JobQueue
from penstock.domain.limits import MINUTE_MS
from penstock.domain.operation import JobFilter
from penstock.domain.retry import RetryPolicy
from penstock.domain.schedule import Schedule
from penstock.store.job_port import JobStore
from penstock.testing import ManualClock
from tests.support.gathers import assert_continued, assert_stored, assert_waiting, members, new_gather, run_members
from tests.support.job_steps import advance, draft, enqueue, fail, finish, make_queue, offer, start

EXPIRES_MS = 5_000
KEY = Lane(key="down", width=4)


async def failure_kind(jobs: JobStore, job_id: str) -> str | None:
    failure = (await jobs.job(job_id)).failure
    return None if failure is None else failure.kind


async def test_an_expired_member_has_failed(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    waiting, collecting = [new_gather(queue, on_error=policy) for policy in (ErrorPolicy.FAIL, ErrorPolicy.COLLECT)]
    for new in (waiting, collecting):
        own = members(new.id, queue, 1, expires_in_ms=EXPIRES_MS) + members(new.id, queue, 1, first=1)
        assert_stored(await jobs.open_gather(new, own, seal=True))
    await clock.advance(ms=EXPIRES_MS)
    await run_members(jobs, queue, 2)
    await assert_waiting(jobs, waiting.id, succeeded=1, failed=1)
    gather = await assert_continued(jobs, collecting.id)
    assert (gather.succeeded, gather.failed) == (1, 1)
    [gone, _] = (await jobs.gather_results(collecting.id, limit=10)).results
    assert gone.failure is not None
    assert (gone.state, gone.failure.kind) == (JobState.CANCELLED, EXPIRED)


async def test_a_retried_member_lets_the_gather_go_on(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    new = new_gather(queue)
    own = members(new.id, queue, 1, expires_in_ms=EXPIRES_MS)
    assert_stored(await jobs.open_gather(new, own, seal=True))
    await clock.advance(ms=EXPIRES_MS)
    await advance(jobs)
    await assert_waiting(jobs, new.id, failed=1)
    await jobs.retry(own[0].draft.id)
    await run_members(jobs, queue, 1)
    assert (await assert_continued(jobs, new.id)).failed == 0


async def test_a_continuation_expires_counted_from_when_it_is_enqueued(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    new = new_gather(queue, then={"expires_in_ms": EXPIRES_MS})
    assert_stored(await jobs.open_gather(new, members(new.id, queue, 1), seal=True))
    await clock.advance(ms=3 * EXPIRES_MS)
    await run_members(jobs, queue, 1)
    await assert_continued(jobs, new.id)
    job = await jobs.job(new.draft.id)
    assert (job.state, job.expires_at_ms) == (JobState.QUEUED, clock.now_ms() + EXPIRES_MS)
    await clock.advance(ms=EXPIRES_MS)
    await advance(jobs)
    assert await failure_kind(jobs, new.draft.id) == EXPIRED


async def test_each_job_of_a_schedule_expires_by_itself(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    one = draft(expires_in_ms=MINUTE_MS, retention_ms=2 * MINUTE_MS)
    saved = await jobs.save_schedule(Schedule(name="s", queue=queue.name, draft=one, interval_ms=MINUTE_MS))
    assert saved.draft.expires_in_ms == MINUTE_MS
    for _ in range(3):
        await clock.advance(ms=MINUTE_MS)
        await advance(jobs)
        await jobs.fire_schedules()
    states = [job.state for job in await jobs.jobs(JobFilter(), limit=10)]
    assert states == [JobState.QUEUED, JobState.CANCELLED, JobState.CANCELLED]


async def open_breaker(jobs: JobStore, queue: JobQueue) -> None:
    """Open the breaker of the key, and hold up what waits for it."""
    await enqueue(jobs, queue, *(draft(lane=KEY) for _ in range(3)))
    for _ in range(3):
        await fail(jobs, await start(jobs, queue))
        await enqueue(jobs, queue, draft(priority=9))
        await finish(jobs, await start(jobs, queue))


async def queue_with_breaker(jobs: JobStore) -> JobQueue:
    breaker = BreakerPolicy(failures_max=3, open_ms=3 * EXPIRES_MS, probes=1)
    return await make_queue(jobs, "fragile", breaker=breaker, retry=RetryPolicy(backoff_ms=3_600_000, jitter=False))


async def test_what_a_breaker_holds_up_expires(jobs: JobStore, clock: ManualClock) -> None:
    queue = await queue_with_breaker(jobs)
    await open_breaker(jobs, queue)
    [job_id] = await enqueue(jobs, queue, draft(lane=KEY, expires_in_ms=EXPIRES_MS))
    assert await offer(jobs, queue) == []
    assert (await jobs.job(job_id)).state is JobState.QUEUED
    await clock.advance(ms=EXPIRES_MS)
    await advance(jobs)
    assert await failure_kind(jobs, job_id) == EXPIRED


async def test_what_a_breaker_lets_go_still_expires(jobs: JobStore, clock: ManualClock) -> None:
    queue = await queue_with_breaker(jobs)
    await open_breaker(jobs, queue)
    first, second = await enqueue(jobs, queue, *(draft(lane=KEY, expires_in_ms=4 * EXPIRES_MS) for _ in range(2)))
    assert await offer(jobs, queue) == []
    await clock.advance(ms=3 * EXPIRES_MS)
    probe = await start(jobs, queue)
    assert probe.job_id == first
    assert await offer(jobs, queue) == []
    # The breaker closes.
    await finish(jobs, probe)
    job = await jobs.job(second)
    assert job.due_at_ms == job.expires_at_ms == clock.now_ms() + EXPIRES_MS
    await clock.advance(ms=EXPIRES_MS)
    assert await offer(jobs, queue) == []
    assert await failure_kind(jobs, second) == EXPIRED
