from __future__ import annotations

from penstock.domain.job import Failure, JobState
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Fail, JobStore, Release, Snooze
from penstock.testing import ManualClock
from tests.support.job_lives import add, add_many, complete, die
from tests.support.job_steps import report, start


async def test_an_empty_queue_counts_nothing(jobs: JobStore, queue: JobQueue) -> None:
    counts = await jobs.counts(queue)
    assert counts.by_state == dict.fromkeys(JobState, 0)
    assert counts.oldest_due_ms is None


async def test_every_state_is_counted(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add(jobs, queue)
    await complete(jobs, queue)
    await add(jobs, queue)
    await die(jobs, queue)
    await jobs.cancel(await add(jobs, queue))
    await add(jobs, queue)
    await report(jobs, Fail(await start(jobs, queue), Failure(kind="Busy", retry_after_ms=60_000)))
    await add(jobs, queue)
    await start(jobs, queue)
    await add(jobs, queue)
    assert (await jobs.offer(queue, count=1, worker="w")).offers
    await add_many(jobs, queue, 3)
    await add_many(jobs, queue, 2, delay_ms=1_000)
    assert (await jobs.counts(queue)).by_state == {
        JobState.SCHEDULED: 2,
        JobState.QUEUED: 3,
        JobState.OFFERED: 1,
        JobState.RUNNING: 1,
        JobState.RETRYING: 1,
        JobState.SUCCEEDED: 1,
        JobState.DEAD: 1,
        JobState.CANCELLED: 1,
    }


async def test_queues_are_counted_apart(jobs: JobStore, queue: JobQueue) -> None:
    other, _ = await jobs.create_queue("other", JobQueueSettings())
    await add_many(jobs, queue, 3)
    assert (await jobs.counts(other)).by_state[JobState.QUEUED] == 0
    assert (await jobs.counts(queue)).by_state[JobState.QUEUED] == 3


async def test_the_oldest_waits_since_it_was_enqueued(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add(jobs, queue)
    await clock.advance(seconds=5)
    await add(jobs, queue)
    await clock.advance(seconds=2)
    assert (await jobs.counts(queue)).oldest_due_ms == 7_000
    await complete(jobs, queue)
    assert (await jobs.counts(queue)).oldest_due_ms == 2_000
    await complete(jobs, queue)
    assert (await jobs.counts(queue)).oldest_due_ms is None


async def test_a_delayed_job_waits_since_it_came_due(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add(jobs, queue, delay_ms=60_000)
    await clock.advance(seconds=59)
    assert (await jobs.counts(queue)).oldest_due_ms is None
    # Nobody looks at it until two seconds after it came due.
    await clock.advance(seconds=3)
    await jobs.advance()
    assert (await jobs.counts(queue)).oldest_due_ms == 2_000


async def test_a_retried_job_waits_since_its_backoff_was_over(jobs: JobStore, clock: ManualClock) -> None:
    retry = RetryPolicy(backoff_ms=10_000, jitter=False)
    queue, _ = await jobs.create_queue("retried", JobQueueSettings(retry=retry))
    await add(jobs, queue)
    await report(jobs, Fail(await start(jobs, queue), Failure(kind="Busy")))
    await clock.advance(seconds=10)
    await jobs.advance()
    await clock.advance(seconds=3)
    assert (await jobs.counts(queue)).oldest_due_ms == 3_000


async def test_an_offer_that_came_to_nothing_does_not_make_a_job_wait_anew(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await add(jobs, queue)
    await clock.advance(seconds=4)
    [offer] = (await jobs.offer(queue, count=1, worker="w")).offers
    await clock.advance(seconds=1)
    await report(jobs, Release(offer.lease))
    assert (await jobs.counts(queue)).oldest_due_ms == 5_000


async def test_a_job_that_ran_waits_since_it_was_given_back(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    await clock.advance(seconds=4)
    await report(jobs, Release(lease))
    assert (await jobs.counts(queue)).oldest_due_ms == 0
    lease = await start(jobs, queue)
    await report(jobs, Snooze(lease, 30_000))
    # By hand, before it comes due by itself.
    await clock.advance(seconds=10)
    await jobs.retry(lease.job_id)
    await clock.advance(seconds=1)
    assert (await jobs.counts(queue)).oldest_due_ms == 1_000
