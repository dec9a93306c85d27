"""Idempotency keys: one request makes one job, however often it is made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.domain.job import JobState
from penstock.domain.job_errors import IdempotencyKeyReused
from penstock.domain.job_queue import JobQueue
from penstock.domain.limits import DAY_MS
from penstock.store.job_port import Enqueued, JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import counted, draft, enqueue, enqueue_one, finish, key_of, make_queue, start
from tests.support.stores import Home, on_postgres

KEY = key_of("order-1")


async def test_a_known_key_stands_for_its_job(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue, draft(idempotency_key=KEY, fingerprint=b"f"))
    again = await enqueue_one(jobs, queue, draft(idempotency_key=KEY, fingerprint=b"f"))
    assert again == Enqueued(job_id, JobState.QUEUED, new=False)
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}


async def test_a_key_stands_for_its_job_when_that_is_finished_too(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue, draft(idempotency_key=KEY))
    await finish(jobs, await start(jobs, queue))
    again = await enqueue_one(jobs, queue, draft(idempotency_key=KEY))
    assert again == Enqueued(job_id, JobState.SUCCEEDED, new=False)


async def test_a_key_is_not_for_another_request(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, draft(idempotency_key=KEY, fingerprint=b"f"))
    assert isinstance(
        await enqueue_one(jobs, queue, draft(idempotency_key=KEY, fingerprint=b"g")), IdempotencyKeyReused
    )
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}


async def test_a_key_is_of_one_queue(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, draft(idempotency_key=KEY))
    other = await make_queue(jobs, "other")
    await enqueue(jobs, other, draft(idempotency_key=KEY))


async def test_an_expired_key_is_free(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [job_id] = await enqueue(jobs, queue, draft(idempotency_key=KEY, fingerprint=b"f"))
    await clock.advance(ms=DAY_MS - 1)
    assert isinstance(
        await enqueue_one(jobs, queue, draft(idempotency_key=KEY, fingerprint=b"g")), IdempotencyKeyReused
    )
    await clock.advance(ms=1)
    [other_id] = await enqueue(jobs, queue, draft(idempotency_key=KEY, fingerprint=b"g"))
    assert other_id != job_id
    again = await enqueue_one(jobs, queue, draft(idempotency_key=KEY, fingerprint=b"g"))
    assert again == Enqueued(other_id, JobState.QUEUED, new=False)


async def test_a_key_twice_in_a_batch_is_one_job(jobs: JobStore, queue: JobQueue) -> None:
    drafts = [
        draft(idempotency_key=KEY, fingerprint=b"f", delay_ms=10),
        draft(idempotency_key=KEY, fingerprint=b"f"),
        draft(idempotency_key=KEY, fingerprint=b"g"),
        draft(),
    ]
    first, second, third, fourth = await jobs.enqueue(queue, drafts)
    assert first == Enqueued(drafts[0].id, JobState.SCHEDULED)
    assert second == Enqueued(drafts[0].id, JobState.SCHEDULED, new=False)
    assert isinstance(third, IdempotencyKeyReused)
    assert fourth == Enqueued(drafts[3].id, JobState.QUEUED)


async def test_a_key_that_found_a_unique_job_stands_for_that(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue, draft(unique_key="u"))
    twice = [draft(unique_key="u", idempotency_key=KEY) for _ in range(2)]
    assert await enqueue_one(jobs, queue, twice[0]) == Enqueued(job_id, JobState.QUEUED, new=False, by_unique_key=True)
    await finish(jobs, await start(jobs, queue))
    assert await enqueue_one(jobs, queue, twice[1]) == Enqueued(job_id, JobState.SUCCEEDED, new=False)


async def test_two_hundred_enqueues_at_once_with_one_key_make_one_job(jobs: JobStore, queue: JobQueue) -> None:
    drafts = [draft(idempotency_key=KEY, fingerprint=b"f") for _ in range(200)]
    answers = await asyncio.gather(*(enqueue_one(jobs, queue, one) for one in drafts))
    _check_one_job(answers)
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}


@on_postgres
async def test_also_at_two_nodes(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    other = (await home.open()).jobs
    drafts = [draft(idempotency_key=KEY, fingerprint=b"f") for _ in range(200)]
    nodes = [jobs, other] * 100
    answers = await asyncio.gather(*(enqueue_one(node, queue, one) for node, one in zip(nodes, drafts, strict=True)))
    _check_one_job(answers)
    assert await counted(other, queue) == {JobState.QUEUED: 1}


def _check_one_job(answers: Sequence[object]) -> None:
    enqueued = [answer for answer in answers if isinstance(answer, Enqueued)]
    assert len(enqueued) == 200
    assert len({answer.job_id for answer in enqueued}) == 1
    assert sum(answer.new for answer in enqueued) == 1
