"""Races: many callers and nodes at once, and every job still has one life."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from penstock.domain.job import TERMINAL, Failure, JobState, Lane
from penstock.domain.job_errors import JobError, JobStateConflict
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue
from penstock.domain.operation import JobFilter, OperationKind
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Accept, Complete, Enqueued, Fail, JobStore, Release, Reported
from penstock.store.jobs import enqueueing
from penstock.store.jobs.script import Overtaken, Script, Tx
from penstock.store.jobs.store import ScriptedJobs
from penstock.store.jobs.surroundings import Surroundings
from penstock.testing import CountedIds, ManualClock
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    finish,
    make_queue,
    offer,
    offered_ids,
    report,
    start,
    states,
)
from tests.support.stores import Home, on_postgres


@pytest.fixture
async def other(home: Home, jobs: JobStore) -> JobStore:
    """Another node on the database of `jobs`."""
    return (await home.open()).jobs


async def test_callers_share_out_the_jobs(jobs: JobStore, queue: JobQueue) -> None:
    await _check_shared_out([jobs] * 10, queue)


@on_postgres
async def test_nodes_share_out_the_jobs(jobs: JobStore, other: JobStore, queue: JobQueue) -> None:
    await _check_shared_out([jobs, other] * 5, queue)


async def _check_shared_out(nodes: list[JobStore], queue: JobQueue) -> None:
    ids = await enqueue(nodes[0], queue, *(draft(tenant=f"t{number % 3}") for number in range(60)))
    given: Counter[str] = Counter()
    while sum(given.values()) < 60:
        for batch in await asyncio.gather(*(offered_ids(node, queue, 3) for node in nodes)):
            given.update(batch)
    assert given == Counter(ids)
    assert await counted(nodes[0], queue) == {JobState.OFFERED: 60}


@on_postgres
async def test_a_lane_is_as_wide_as_it_is_over_nodes(jobs: JobStore, other: JobStore, queue: JobQueue) -> None:
    lane = Lane(key="api", width=3)
    nodes = [jobs, other]
    running: set[str] = set()
    done: list[str] = []

    async def work(node: JobStore) -> None:
        while len(done) < 40:
            for one in await offer(node, queue, 2):
                await report(node, Accept(one.lease))
                running.add(one.lease.job_id)
                assert len(running) <= 3
                await node.job(one.lease.job_id)
                running.discard(one.lease.job_id)
                done.append(one.lease.job_id)
                await finish(node, one.lease)

    async with asyncio.timeout(60):
        await asyncio.gather(
            *(enqueue(nodes[number % 2], queue, draft(lane=lane)) for number in range(40)),
            *(work(node) for node in nodes * 3),
        )
    assert len(set(done)) == 40
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 40}
    await enqueue(jobs, queue, *(draft(lane=lane) for _ in range(5)))
    assert len(await offer(jobs, queue)) == 3


@on_postgres
async def test_what_comes_due_takes_effect_once_however_many_nodes_see_to_it(
    jobs: JobStore, other: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    lanes = [None, Lane(key="k", width=30), Lane(key="g", ordered=True)]
    await enqueue(jobs, queue, *(draft(lane=lanes[number % 3]) for number in range(60)))
    leases = [one.lease for one in await offer(jobs, queue, 60)]
    assert len(leases) == 41
    await jobs.report([Accept(lease) for lease in leases])
    await clock.advance(ms=queue.settings.lease_ms)
    await asyncio.gather(*(node.advance() for node in [jobs, other] * 4), offer(other, queue))
    await advance(jobs)
    for lease in leases:
        job = await jobs.job(lease.job_id)
        assert (job.state, job.losses, len(job.history)) == (JobState.RETRYING, 1, 1)
    assert await counted(jobs, queue) == {JobState.RETRYING: 41, JobState.QUEUED: 19}


async def test_a_report_and_a_lapse_at_once_have_one_outcome(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    ids = await enqueue(jobs, queue, *(draft() for _ in range(20)))
    leases = [one.lease for one in await offer(jobs, queue, 20)]
    await jobs.report([Accept(lease) for lease in leases])
    answers = await asyncio.gather(
        *(jobs.report([Complete(lease)]) for lease in leases),
        clock.advance(ms=queue.settings.lease_ms),
        *(jobs.advance() for _ in range(3)),
    )
    await advance(jobs)
    reported = [answer[0] for answer in answers[:20] if isinstance(answer, list)]
    for answer, state in zip(reported, await states(jobs, ids), strict=True):
        assert state is (JobState.SUCCEEDED if isinstance(answer, Reported) else JobState.RETRYING)


@on_postgres
async def test_whatever_happens_at_once_leaves_every_job_in_one_state(jobs: JobStore, other: JobStore) -> None:
    queue = await make_queue(jobs, "busy", retry=RetryPolicy(attempts_max=3, backoff_ms=0))
    lanes = [None, Lane(key="k", width=2), Lane(key="g", ordered=True), Lane(key="h", ordered=True)]
    ids = await enqueue(jobs, queue, *(draft(lane=lanes[number % 4], unique_key=f"u{number}") for number in range(40)))
    async with asyncio.timeout(120):
        await asyncio.gather(
            *(_work_anyhow(node, queue, number) for number, node in enumerate([jobs, other, jobs, other])),
            _meddle(jobs, ids[::3]),
            _meddle(other, ids[1::3]),
            *(node.advance() for node in [jobs, other] * 5),
        )
        while not TERMINAL.issuperset(await states(jobs, ids)):
            await advance(jobs)
            for one in await offer(jobs, queue):
                await jobs.report([Accept(one.lease), Complete(one.lease)])
    assert await counted(jobs, queue) == Counter(await states(jobs, ids))
    # All places of all lanes are free again.
    await enqueue(jobs, queue, *(draft(lane=lanes[number % 4]) for number in range(20)))
    assert len(await offer(jobs, queue, 20)) == 5 + 2 + 1 + 1


async def _work_anyhow(node: JobStore, queue: JobQueue, number: int) -> None:
    """Take jobs and release, fail or complete them in turn."""
    for _ in range(30):
        for turn, one in enumerate(await offer(node, queue, 3), number):
            # It may be cancelled by now.
            [accepted] = await node.report([Accept(one.lease)])
            if isinstance(accepted, JobError):
                continue
            failure = Fail(one.lease, Failure(kind="x"))
            await report(node, (Release(one.lease), failure, Complete(one.lease))[turn % 3])


async def _meddle(node: JobStore, job_ids: list[str]) -> None:
    """Cancel jobs and bring them back, where that can be done."""
    for job_id in job_ids:
        for verb in (node.cancel, node.retry):
            with contextlib.suppress(JobStateConflict):
                await verb(job_id)


@on_postgres
async def test_a_queue_is_not_deleted_under_an_enqueue(jobs: JobStore, other: JobStore) -> None:
    for number in range(10):
        queue = await make_queue(jobs, f"q{number}")
        deleted, enqueued = await asyncio.gather(
            jobs.delete_queue(queue), other.enqueue(queue, [one := draft()]), return_exceptions=True
        )
        assert isinstance(deleted, JobError) is not isinstance(enqueued, JobError)
        if not isinstance(enqueued, BaseException):
            assert (await start(jobs, queue)).job_id == one.id


@on_postgres
async def test_a_call_that_was_overtaken_is_made_again(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(jobs, ScriptedJobs)
    runs: list[Tx] = []
    [first, second] = [draft(), draft()]
    around = Surroundings(CountedIds(), JobLimits(), lambda: 0.5)

    def body(tx: Tx) -> Script[list[Enqueued | JobError]]:
        runs.append(tx)
        if len(runs) == 1:
            yield from enqueueing.enqueue(tx, around, queue, [first])
            raise Overtaken("others were quicker")
        return (yield from enqueueing.enqueue(tx, around, queue, [second]))

    await jobs._run("enqueue", body)  # noqa: SLF001 - who is overtaken when is for the scripts to say
    assert len(runs) == 2
    assert await offered_ids(jobs, queue) == [second.id]
    assert await counted(jobs, queue) == {JobState.OFFERED: 1}


@on_postgres
async def test_a_requeue_and_enqueues_of_the_same_unique_keys_leave_one_job_of_each(
    jobs: JobStore, other: JobStore, queue: JobQueue
) -> None:
    keys = [f"u{number}" for number in range(20)]
    dead = await enqueue(jobs, queue, *(draft(unique_key=key) for key in keys))
    for one in await offer(jobs, queue, len(dead)):
        await jobs.report([Accept(one.lease), Fail(one.lease, Failure(kind="x", permanent=True))])
    await jobs.start_operation("op", OperationKind.REQUEUE, queue, JobFilter(), None)
    async with asyncio.timeout(60):
        await asyncio.gather(
            jobs.advance_operations(),
            *(other.enqueue(queue, [draft(unique_key=key)]) for key in reversed(keys)),
        )
        while await jobs.advance_operations() is not None:
            pass
    unfinished = [job.unique_key for job in await jobs.jobs(JobFilter(states=(JobState.QUEUED,)), limit=100)]
    assert sorted(map(str, unfinished)) == sorted(keys)
