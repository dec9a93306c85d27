"""Bounds and rates: what is too much is turned away."""

from __future__ import annotations

import asyncio

import msgspec

from penstock.domain.job import JobDraft, JobState
from penstock.domain.job_errors import JobRefused, TooMany
from penstock.domain.job_queue import JobQueue, Rate
from penstock.store.job_port import Complete, Enqueued, JobStore
from penstock.testing import ManualClock
from tests.support.job_steps import counted, draft, enqueue, enqueue_one, key_of, make_queue, report, start
from tests.support.stores import Home, on_postgres


async def refusal(jobs: JobStore, queue: JobQueue, one: JobDraft | None = None) -> tuple[TooMany, int]:
    answer = await enqueue_one(jobs, queue, one)
    assert isinstance(answer, JobRefused), answer
    return answer.why, answer.retry_after_ms


async def test_a_full_queue_takes_no_more(jobs: JobStore) -> None:
    queue = await make_queue(jobs, depth_max=3)
    await enqueue(jobs, queue, draft(), draft(delay_ms=1))
    answers = await jobs.enqueue(queue, [draft(), draft(), draft()])
    assert [type(answer) for answer in answers] == [Enqueued, JobRefused, JobRefused]
    assert (await refusal(jobs, queue))[0] is TooMany.QUEUE_FULL
    assert await counted(jobs, queue) == {JobState.QUEUED: 2, JobState.SCHEDULED: 1}
    # What runs does not wait.
    lease = await start(jobs, queue)
    await enqueue(jobs, queue, draft())
    await report(jobs, Complete(lease))
    assert (await refusal(jobs, queue))[0] is TooMany.QUEUE_FULL


async def test_what_is_known_is_answered_by_a_full_queue_too(jobs: JobStore) -> None:
    queue = await make_queue(jobs, depth_max=1)
    one = draft(idempotency_key=key_of("k"), unique_key="u")
    await enqueue(jobs, queue, one)
    known = [one, draft(idempotency_key=key_of("k")), draft(unique_key="u")]
    answers = await jobs.enqueue(queue, known)
    assert [answer.job_id for answer in answers if isinstance(answer, Enqueued)] == [one.id] * 3


async def test_a_refused_draft_leaves_its_key_free(jobs: JobStore) -> None:
    queue = await make_queue(jobs, depth_max=1)
    await enqueue(jobs, queue)
    one = draft(idempotency_key=key_of("k"), unique_key="u")
    assert (await refusal(jobs, queue, one))[0] is TooMany.QUEUE_FULL
    await start(jobs, queue)
    assert await enqueue(jobs, queue, one) == [one.id]


async def test_a_rate_allows_a_burst_and_then_so_many_a_second(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, rate=Rate(per_second=10, burst=3))
    await enqueue(jobs, queue, draft(tenant="a"), draft(tenant="b"), draft(tenant="c"))
    assert await refusal(jobs, queue) == (TooMany.RATE_GLOBAL, 100)
    await clock.advance(ms=99)
    assert await refusal(jobs, queue) == (TooMany.RATE_GLOBAL, 1)
    await clock.advance(ms=1)
    await enqueue(jobs, queue)
    assert await refusal(jobs, queue) == (TooMany.RATE_GLOBAL, 100)
    await clock.advance(seconds=60)
    answers = await jobs.enqueue(queue, [draft() for _ in range(5)])
    assert [type(answer) for answer in answers] == [Enqueued] * 3 + [JobRefused] * 2


async def test_a_rate_that_was_raised_counts_at_once(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, rate=Rate(per_second=0.001, burst=3))
    await enqueue(jobs, queue, draft(), draft(), draft())
    assert await refusal(jobs, queue) == (TooMany.RATE_GLOBAL, 1_000_000)
    raised = await jobs.save_queue(
        queue, settings=msgspec.structs.replace(queue.settings, rate=Rate(per_second=10, burst=3))
    )
    assert raised is not None
    await enqueue(jobs, raised)
    assert await refusal(jobs, raised) == (TooMany.RATE_GLOBAL, 100)
    await clock.advance(ms=300)
    await enqueue(jobs, raised, draft(), draft(), draft())


async def test_each_tenant_has_a_rate_of_its_own(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, rate_per_tenant=Rate(per_second=0.5, burst=1))
    answers = await jobs.enqueue(queue, [draft(tenant=tenant) for tenant in ["a", "a", "b", ""]])
    assert [type(answer) for answer in answers] == [Enqueued, JobRefused, Enqueued, Enqueued]
    assert await refusal(jobs, queue, draft(tenant="a")) == (TooMany.RATE_TENANT, 2_000)
    await clock.advance(seconds=2)
    await enqueue(jobs, queue, draft(tenant="a"))


async def test_what_is_refused_takes_no_token(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(
        jobs, rate=Rate(per_second=1, burst=2), rate_per_tenant=Rate(per_second=1, burst=1), depth_max=3
    )
    await enqueue(jobs, queue, draft(tenant="a"))
    for _ in range(3):
        assert await refusal(jobs, queue, draft(tenant="a")) == (TooMany.RATE_TENANT, 1_000)
    await enqueue(jobs, queue, draft(tenant="b"))
    assert await refusal(jobs, queue, draft(tenant="c")) == (TooMany.RATE_GLOBAL, 1_000)
    await clock.advance(seconds=1)
    await enqueue(jobs, queue, draft(tenant="c"))
    await clock.advance(seconds=1)
    for _ in range(3):
        assert (await refusal(jobs, queue, draft(tenant="d")))[0] is TooMany.QUEUE_FULL
    await start(jobs, queue)
    await enqueue(jobs, queue, draft(tenant="d"))


async def test_what_is_known_takes_no_token(jobs: JobStore) -> None:
    queue = await make_queue(jobs, rate=Rate(per_second=1, burst=2))
    one = draft(idempotency_key=key_of("k"))
    await enqueue(jobs, queue, one)
    for known in (one, draft(idempotency_key=key_of("k"))):
        assert isinstance(await enqueue_one(jobs, queue, known), Enqueued)
    await enqueue(jobs, queue)
    assert (await refusal(jobs, queue))[0] is TooMany.RATE_GLOBAL


@on_postgres
async def test_nodes_share_a_rate(home: Home, jobs: JobStore) -> None:
    other = (await home.open()).jobs
    queue = await make_queue(
        jobs, rate=Rate(per_second=0.001, burst=10), rate_per_tenant=Rate(per_second=0.001, burst=3)
    )
    drafts = [draft(tenant=f"t{number % 5}") for number in range(40)]
    answers = await asyncio.gather(
        *(enqueue_one([jobs, other][number % 2], queue, one) for number, one in enumerate(drafts))
    )
    assert sum(isinstance(answer, Enqueued) for answer in answers) == 10
    assert await counted(jobs, queue) == {JobState.QUEUED: 10}
