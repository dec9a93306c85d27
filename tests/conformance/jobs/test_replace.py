"""Unique keys that replace: a new job takes the place of one that still waits."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec
import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import JobDraft, JobState, Lane, OnDuplicate
from penstock.domain.job_errors import JobRefused
from penstock.domain.job_queue import JobQueue, Rate
from penstock.store.job_port import Enqueued, JobStore
from penstock.testing import ManualClock
from tests.support.interleaving import lose_the_answer
from tests.support.job_steps import (
    counted,
    draft,
    enqueue,
    enqueue_one,
    fail,
    finish,
    group,
    key_of,
    make_queue,
    offer,
    offered_ids,
    start,
    state_of,
)
from tests.support.stores import Home, Opener, PostgresDatabase, on_postgres

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def replacing(**options: Any) -> JobDraft:
    return draft(unique_key="u", on_duplicate=OnDuplicate.REPLACE, **options)


async def test_a_waiting_job_makes_way(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    [scheduled] = await enqueue(jobs, queue, draft(unique_key="u", delay_ms=60_000))
    second = replacing(delay_ms=1_000)
    assert await enqueue_one(jobs, queue, second) == Enqueued(second.id, JobState.SCHEDULED, replaced=scheduled)
    assert await state_of(jobs, scheduled) is JobState.CANCELLED
    third = replacing()
    assert await enqueue_one(jobs, queue, third) == Enqueued(third.id, JobState.QUEUED, replaced=second.id)
    assert await counted(jobs, queue) == {JobState.CANCELLED: 2, JobState.QUEUED: 1}
    [told] = (await jobs.events(second.id, limit=10)).events
    assert (told.kind, msgspec.json.decode(told.data)) == ("job.cancelled", {"replaced_by": third.id})
    await fail(jobs, await start(jobs, queue))
    fourth = replacing()
    assert await enqueue_one(jobs, queue, fourth) == Enqueued(fourth.id, JobState.QUEUED, replaced=third.id)
    await clock.advance(seconds=60)
    assert await offered_ids(jobs, queue) == [fourth.id]


async def test_a_job_that_is_offered_or_runs_is_kept(jobs: JobStore, queue: JobQueue) -> None:
    [job_id] = await enqueue(jobs, queue, replacing())
    lease = await start(jobs, queue)
    again = await enqueue_one(jobs, queue, replacing())
    assert again == Enqueued(job_id, JobState.RUNNING, new=False, by_unique_key=True)
    await finish(jobs, lease)
    [other] = await enqueue(jobs, queue, replacing())
    await offer(jobs, queue)
    assert await enqueue_one(jobs, queue, replacing()) == Enqueued(
        other, JobState.OFFERED, new=False, by_unique_key=True
    )


async def test_in_a_batch_the_last_one_stays(jobs: JobStore, queue: JobQueue) -> None:
    drafts = [draft(unique_key="u"), replacing(), draft(unique_key="u"), replacing(), draft()]
    answers = await jobs.enqueue(queue, drafts)
    first, second, _, fourth, plain = (one.id for one in drafts)
    assert answers == [
        Enqueued(first, JobState.CANCELLED),
        Enqueued(second, JobState.CANCELLED, replaced=first),
        Enqueued(second, JobState.CANCELLED, new=False, by_unique_key=True),
        Enqueued(fourth, JobState.QUEUED, replaced=second),
        Enqueued(plain, JobState.QUEUED),
    ]
    assert sorted(await offered_ids(jobs, queue)) == sorted([fourth, plain])


async def test_what_is_refused_replaces_nothing(jobs: JobStore) -> None:
    queue = await make_queue(jobs, "slow", depth_max=1, rate=Rate(per_second=0.001, burst=2))
    [first] = await enqueue(jobs, queue, draft(unique_key="u"))
    # A full queue is no fuller after a replacement.
    [second] = await enqueue(jobs, queue, replacing())
    assert isinstance(await enqueue_one(jobs, queue, replacing()), JobRefused)
    assert await state_of(jobs, first) is JobState.CANCELLED
    assert await state_of(jobs, second) is JobState.QUEUED


@pytest.mark.parametrize("lane", [group("g"), Lane(key="k")])
async def test_its_place_in_a_lane_goes_to_who_is_next(jobs: JobStore, queue: JobQueue, lane: Lane) -> None:
    _, behind = await enqueue(jobs, queue, draft(unique_key="u", lane=lane), draft(lane=lane))
    [last] = await enqueue(jobs, queue, replacing(lane=lane))
    [one] = await offer(jobs, queue)
    assert one.lease.job_id == behind
    await jobs.cancel(behind)
    assert await offered_ids(jobs, queue) == [last]


async def test_keys_go_on_standing_for_their_jobs(jobs: JobStore, queue: JobQueue) -> None:
    one, other = replacing(idempotency_key=key_of("1")), replacing(idempotency_key=key_of("2"))
    await enqueue(jobs, queue, one)
    await enqueue(jobs, queue, other)
    repeated = msgspec.structs.replace(one, id="repeated")
    assert await enqueue_one(jobs, queue, repeated) == Enqueued(one.id, JobState.CANCELLED, new=False)
    assert await state_of(jobs, other.id) is JobState.QUEUED


async def test_a_batch_that_replaces_its_own_jobs_keeps_to_the_bound(jobs: JobStore) -> None:
    queue = await make_queue(jobs, "small", depth_max=2)
    *taken, refused = await jobs.enqueue(queue, [replacing(), draft(), replacing(), draft()])
    assert all(isinstance(answer, Enqueued) for answer in taken)
    assert isinstance(refused, JobRefused)
    assert await counted(jobs, queue) == {JobState.QUEUED: 2, JobState.CANCELLED: 1}


@on_postgres
@pytest.mark.parametrize(
    ("held", "needed"),
    [
        # It waits for the new job's lane, and does not hold yet that of the job that makes way.
        ("job_lane WHERE key = 'a'", "job_lane WHERE key = 'b'"),
        # It waits for its bucket, and holds no lane yet.
        ("job_bucket", "job_lane WHERE key = 'b'"),
    ],
)
async def test_who_replaces_locks_in_the_order_of_others(home: Home, opener: Opener, held: str, needed: str) -> None:
    """Two who lock in different orders would wait for each other, until one of them is killed for it."""
    jobs = (await home.open()).jobs
    queue = await make_queue(jobs, rate=Rate(per_second=100, burst=100))
    [before, _] = await enqueue(jobs, queue, draft(unique_key="u", lane=Lane(key="b")), draft(lane=Lane(key="a")))
    assert isinstance(opener, PostgresDatabase)
    other = await asyncpg.connect(opener.dsn)
    try:
        async with other.transaction():
            await other.execute(f"SELECT 1 FROM penstock.{held} FOR UPDATE")
            answer = asyncio.create_task(enqueue_one(jobs, queue, replacing(lane=Lane(key="a"))))
            while not await other.fetchval(_WAITING):
                await asyncio.wait([answer], timeout=0.01)
                assert not answer.done()
            await other.execute(f"SELECT 1 FROM penstock.{needed} FOR UPDATE NOWAIT")
        answered = await answer
    finally:
        await other.close()
    assert isinstance(answered, Enqueued)
    assert answered.replaced == before


async def test_of_many_at_once_one_stays(jobs: JobStore, queue: JobQueue) -> None:
    await _check_race([jobs] * 20, queue)


@on_postgres
async def test_of_many_at_several_nodes_one_stays(home: Home) -> None:
    nodes = [(await home.open()).jobs for _ in range(3)]
    await _check_race(nodes * 7, await make_queue(nodes[0]))


async def _check_race(nodes: list[JobStore], queue: JobQueue) -> None:
    answers = await asyncio.gather(*(enqueue_one(node, queue, replacing()) for node in nodes))
    assert all(isinstance(answer, Enqueued) and answer.new for answer in answers)
    assert await counted(nodes[0], queue) == {JobState.QUEUED: 1, JobState.CANCELLED: len(nodes) - 1}
    replaced = [answer.replaced for answer in answers if isinstance(answer, Enqueued)]
    assert len({job_id for job_id in replaced if job_id is not None}) == len(nodes) - 1


@on_postgres
async def test_a_commit_of_which_nobody_heard_is_answered_the_same(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints
) -> None:
    [first] = await enqueue(jobs, queue, draft(unique_key="u"))
    lose_the_answer(failpoints, "jobs.enqueue.committed", ConnectionError)
    one = replacing()
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED, replaced=first)
    assert await counted(jobs, queue) == {JobState.QUEUED: 1, JobState.CANCELLED: 1}
