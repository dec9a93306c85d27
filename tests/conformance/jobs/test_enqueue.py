"""Enqueueing: what becomes of drafts."""

from __future__ import annotations

import pytest

from penstock.domain.job import JobState, Lane
from penstock.domain.job_errors import JobQueueDoesNotExist
from penstock.domain.job_queue import JobQueue
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Enqueued, JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import advance, counted, draft, enqueue, enqueue_one, offered_ids, start


async def test_everything_about_a_draft_is_kept(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    one = draft(
        "resize",
        b'["a"]',
        priority=7,
        tenant="t1",
        lane=Lane(key="upstream", width=3),
        timeout_ms=1_234,
        retry=RetryPolicy(attempts_max=2),
        unique_key="u",
        tags=("red", "blue"),
        trace="00-1-2-01",
        correlation_id="c",
    )
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED)
    job = await jobs.job(one.id)
    assert (job.id, job.queue, job.task, job.payload, job.state) == (
        one.id,
        "mail",
        "resize",
        b'["a"]',
        JobState.QUEUED,
    )
    assert (job.priority, job.tenant, job.lane, job.tags) == (7, "t1", one.lane, ("red", "blue"))
    assert (job.timeout_ms, job.retry, job.unique_key) == (1_234, one.retry, "u")
    assert (job.trace, job.correlation_id) == ("00-1-2-01", "c")
    assert (job.enqueued_at_ms, job.due_at_ms, job.finished_at_ms) == (clock.now_ms(), None, None)
    assert (job.attempts, job.failures, job.losses, job.cancel_requested, job.history) == (0, 0, 0, False, ())


async def test_a_plain_job_follows_its_queue(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue)
    job = await jobs.job(job_id)
    assert (job.timeout_ms, job.retry) == (queue.settings.timeout_ms, queue.settings.retry)


async def test_positions_follow_the_order_of_the_drafts(jobs: JobStore, queue: JobQueue) -> None:
    ids = await enqueue(jobs, queue, *(draft() for _ in range(30)))
    ids += await enqueue(jobs, queue, draft())
    positions = [(await jobs.job(job_id)).position for job_id in ids]
    assert positions == sorted(positions)
    assert await offered_ids(jobs, queue, 50) == ids


@pytest.mark.parametrize("by", ["delay", "instant"])
async def test_a_delayed_job_comes_due_on_time(jobs: JobStore, queue: JobQueue, clock: ManualClock, by: str) -> None:
    due_at_ms = clock.now_ms() + 5_000
    one = draft(delay_ms=5_000) if by == "delay" else draft(run_at_ms=due_at_ms)
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.SCHEDULED)
    assert (await jobs.job(one.id)).due_at_ms == due_at_ms
    offers = await jobs.offer(queue, count=1, worker="w")
    assert (offers.offers, offers.next_in_ms) == ([], 5_000)
    assert await jobs.advance() == 5_000
    await clock.advance(ms=4_999)
    assert await offered_ids(jobs, queue) == []
    await clock.advance(ms=1)
    assert await offered_ids(jobs, queue) == [one.id]


async def test_an_instant_that_has_passed_is_now(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    one = draft(run_at_ms=clock.now_ms() - 1)
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED)


async def test_a_draft_of_a_known_id_is_the_same_job(jobs: JobStore, queue: JobQueue) -> None:
    one = draft()
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED)
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED, new=False)
    answers = await jobs.enqueue(queue, [one, draft(id=one.id), draft(id="other"), draft(id="other")])
    assert [answer.job_id for answer in answers if isinstance(answer, Enqueued)] == [one.id, one.id, "other", "other"]
    assert await counted(jobs, queue) == {JobState.QUEUED: 2}


async def test_a_repetition_tells_where_the_job_is_by_now(jobs: JobStore, queue: JobQueue) -> None:
    one = draft()
    await enqueue(jobs, queue, one)
    await start(jobs, queue)
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.RUNNING, new=False)


async def test_a_deleted_queue_takes_nothing(jobs: JobStore, queue: JobQueue) -> None:
    await jobs.delete_queue(queue)
    with pytest.raises(JobQueueDoesNotExist):
        await jobs.enqueue(queue, [draft()])


async def test_no_drafts_are_no_jobs(jobs: JobStore, queue: JobQueue) -> None:
    assert await jobs.enqueue(queue, []) == []


async def test_a_large_batch_with_every_kind_of_draft(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    drafts = [
        draft(
            tenant=f"t{number % 3}",
            priority=number % 10,
            delay_ms=1_000 * (number % 2),
            lane=Lane(key="k", width=500) if number % 5 == 0 else None,
            tags=(f"tag{number}",),
        )
        for number in range(500)
    ]
    await enqueue(jobs, queue, *drafts)
    assert await counted(jobs, queue) == {JobState.QUEUED: 250, JobState.SCHEDULED: 250}
    await clock.advance(seconds=1)
    await advance(jobs)
    assert await counted(jobs, queue) == {JobState.QUEUED: 500}
    assert sorted(await offered_ids(jobs, queue, 500)) == sorted(one.id for one in drafts)
