"""Unique keys: at most one unfinished job each."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.job import JobState
from penstock.domain.job_errors import JobStateConflict
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import Enqueued, JobStore
from tests.support.job_steps import counted, draft, enqueue, enqueue_one, fail, finish, key_of, make_queue, start
from tests.support.stores import Home, on_postgres


async def test_an_unfinished_job_stands_for_its_unique_key(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue, draft(unique_key="u", delay_ms=1))
    again = await enqueue_one(jobs, queue, draft(unique_key="u"))
    assert again == Enqueued(job_id, JobState.SCHEDULED, new=False, by_unique_key=True)
    await enqueue(jobs, queue, draft(unique_key="v"), draft())
    await enqueue(jobs, await make_queue(jobs, "other"), draft(unique_key="u"))


async def test_a_finished_job_leaves_its_unique_key(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue, draft(unique_key="u"))
    lease = await start(jobs, queue)
    assert isinstance(await enqueue_one(jobs, queue, draft(unique_key="u")), Enqueued)
    await finish(jobs, lease)
    await enqueue(jobs, queue, draft(unique_key="u"))


async def test_a_unique_key_twice_in_a_batch_is_one_job(jobs: JobStore, queue: JobQueue) -> None:
    drafts = [draft(unique_key="u") for _ in range(3)]
    first, *others = await jobs.enqueue(queue, drafts)
    assert first == Enqueued(drafts[0].id, JobState.QUEUED)
    assert others == [Enqueued(drafts[0].id, JobState.QUEUED, new=False, by_unique_key=True)] * 2


async def test_a_dead_job_cannot_come_back_while_another_has_its_key(jobs: JobStore, queue: JobQueue) -> None:
    [dead] = await enqueue(jobs, queue, draft(unique_key="u"))
    await fail(jobs, await start(jobs, queue), permanent=True)
    await enqueue(jobs, queue, draft(unique_key="u"))
    before = await jobs.job(dead)
    with pytest.raises(JobStateConflict):
        await jobs.retry(dead)
    assert await jobs.job(dead) == before
    await finish(jobs, await start(jobs, queue))
    assert (await jobs.retry(dead)).state is JobState.QUEUED
    assert isinstance(again := await enqueue_one(jobs, queue, draft(unique_key="u")), Enqueued)
    assert again.job_id == dead


@pytest.mark.parametrize("keyed", [False, True])
async def test_enqueues_at_once_with_one_unique_key_make_one_job(
    jobs: JobStore, queue: JobQueue, *, keyed: bool
) -> None:
    await _check_race([jobs] * 50, queue, keyed=keyed)


@on_postgres
@pytest.mark.parametrize("keyed", [False, True])
async def test_also_at_two_nodes(home: Home, jobs: JobStore, queue: JobQueue, *, keyed: bool) -> None:
    other = (await home.open()).jobs
    await _check_race([jobs, other] * 25, queue, keyed=keyed)


@on_postgres
async def test_a_retry_and_an_enqueue_at_once_keep_the_key_unique(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    other = (await home.open()).jobs
    for number in range(10):
        [dead] = await enqueue(jobs, queue, draft(unique_key=f"u{number}"))
        await fail(jobs, await start(jobs, queue), permanent=True)
        retried, enqueued = await asyncio.gather(
            jobs.retry(dead), enqueue_one(other, queue, draft(unique_key=f"u{number}")), return_exceptions=True
        )
        assert isinstance(enqueued, Enqueued)
        if isinstance(retried, BaseException):
            assert isinstance(retried, JobStateConflict)
            assert enqueued.new
        else:
            assert enqueued.job_id == dead
        await finish(jobs, await start(jobs, queue))


async def _check_race(nodes: list[JobStore], queue: JobQueue, *, keyed: bool) -> None:
    drafts = [
        draft(unique_key="u", idempotency_key=key_of(str(number)) if keyed else None) for number in range(len(nodes))
    ]
    answers = await asyncio.gather(*(enqueue_one(node, queue, one) for node, one in zip(nodes, drafts, strict=True)))
    enqueued = [answer for answer in answers if isinstance(answer, Enqueued)]
    assert len(enqueued) == len(nodes)
    assert len({answer.job_id for answer in enqueued}) == 1
    assert sum(answer.new for answer in enqueued) == 1
    assert await counted(nodes[0], queue) == {JobState.QUEUED: 1}
    if keyed:
        # Each key stands for the one job from now on.
        await finish(nodes[0], await start(nodes[0], queue))
        replays = await nodes[0].enqueue(queue, [draft(idempotency_key=one.idempotency_key) for one in drafts])
        assert replays == [Enqueued(enqueued[0].job_id, JobState.SUCCEEDED, new=False)] * len(nodes)
