"""Repetition: what was done is found done, by a caller who asks again and by a store that lost its commit's answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Failure, JobState, Lane
from penstock.domain.job_errors import LeaseLost
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue, Rate
from penstock.store.job_port import Accept, Complete, Enqueued, Fail, Heartbeat, JobStore, Release, Report, Snooze
from penstock.store.jobs import offering
from penstock.store.jobs.script import Script, Tx
from penstock.store.jobs.store import ScriptedJobs
from penstock.store.jobs.surroundings import Surroundings
from penstock.testing import CountedIds, ManualClock
from tests.support.interleaving import lose_the_answer
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    enqueue_one,
    event_kinds,
    fail,
    finish,
    group,
    key_of,
    make_queue,
    offer,
    offered_ids,
    refused,
    report,
    start,
    state_of,
)
from tests.support.stores import on_postgres

LANES = [None, group("g"), Lane(key="k")]

END: dict[str, Callable[[Accept], Report]] = {
    "complete": lambda accepted: Complete(accepted.lease, b"[1]"),
    "fail": lambda accepted: Fail(accepted.lease, Failure(kind="x")),
    "fail for good": lambda accepted: Fail(accepted.lease, Failure(kind="x", permanent=True)),
    "release": lambda accepted: Release(accepted.lease),
    "snooze": lambda accepted: Snooze(accepted.lease, 1_000),
}


def lose_the_commit(
    failpoints: Failpoints, verb: str, meanwhile: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Have the next call of a verb committed without the store knowing, and something done before it tries again."""

    async def lose() -> None:
        if meanwhile is not None:
            await meanwhile()
        raise ConnectionError("the answer was lost")

    failpoints.arm(f"jobs.{verb}.committed", lose)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("way", END)
async def test_a_report_that_ended_an_attempt_is_answered_again(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, way: str, lane: Lane | None
) -> None:
    [job_id] = await enqueue(jobs, queue, draft(lane=lane))
    lease = await start(jobs, queue)
    said = END[way](Accept(lease))
    first = await report(jobs, said)
    after, counts, kinds = await jobs.job(job_id), await counted(jobs, queue), await event_kinds(jobs, job_id)
    assert await report(jobs, said) == first
    assert await jobs.report([said, said]) == [first, first]
    # Anything else that is said under this lease comes too late.
    for other, make in END.items():
        if type(make(Accept(lease))) is not type(said):
            assert isinstance(await refused(jobs, make(Accept(lease))), LeaseLost), other
    assert (await jobs.job(job_id), await counted(jobs, queue), await event_kinds(jobs, job_id)) == (
        after,
        counts,
        kinds,
    )
    # Also when the job is with another by then.
    await clock.advance(seconds=60)
    if first.state not in (JobState.SUCCEEDED, JobState.DEAD):
        await start(jobs, queue, "another")
        assert await report(jobs, said) == first
        assert await state_of(jobs, job_id) is JobState.RUNNING


async def test_a_declined_offer_is_declined_again(jobs: JobStore, queue: JobQueue) -> None:
    await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    first = await report(jobs, Release(one.lease))
    assert await report(jobs, Release(one.lease)) == first
    assert isinstance(await refused(jobs, Accept(one.lease)), LeaseLost)
    [other] = await offer(jobs, queue)
    assert isinstance(await refused(jobs, Release(one.lease)), LeaseLost)
    await report(jobs, Accept(other.lease))


@on_postgres
@pytest.mark.parametrize("lane", LANES)
async def test_a_lost_enqueue_makes_one_job(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints, lane: Lane | None
) -> None:
    one = draft(lane=lane, idempotency_key=key_of("k"), unique_key="u", tags=("a",))
    lose_the_commit(failpoints, "enqueue")
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED)
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}
    await finish(jobs, await start(jobs, queue))
    # Its lane is as free as before.
    await enqueue(jobs, queue, draft(lane=lane))
    await start(jobs, queue)


@on_postgres
async def test_a_lost_enqueue_is_found_though_the_queue_is_full_and_out_of_tokens(
    jobs: JobStore, failpoints: Failpoints
) -> None:
    queue = await make_queue(jobs, "tight", depth_max=1, rate=Rate(per_second=0.001, burst=1))
    one = draft()
    lose_the_commit(failpoints, "enqueue")
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.QUEUED)


@on_postgres
async def test_a_lost_enqueue_is_found_where_it_has_got_to(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints
) -> None:
    one = draft()

    async def run() -> None:
        await finish(jobs, await start(jobs, queue))

    lose_the_commit(failpoints, "enqueue", run)
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.SUCCEEDED)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 1}


@on_postgres
@pytest.mark.parametrize("lane", LANES)
async def test_a_lost_offer_is_made_to_the_same_worker(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints, lane: Lane | None
) -> None:
    ids = await enqueue(jobs, queue, draft(lane=lane), draft(), draft())
    lose_the_commit(failpoints, "offer")
    offers = await offer(jobs, queue, 2)
    assert [one.lease.job_id for one in offers] == ids[:2]
    assert await counted(jobs, queue) == {JobState.OFFERED: 2, JobState.QUEUED: 1}
    for one in offers:
        await report(jobs, Accept(one.lease))
    assert await offered_ids(jobs, queue) == ids[2:]


@on_postgres
async def test_a_lost_offer_is_filled_up_with_others(jobs: JobStore, queue: JobQueue, failpoints: Failpoints) -> None:
    first, second, third = await enqueue(jobs, queue, draft(), draft(), draft())
    lose_the_commit(failpoints, "offer", lambda: jobs.cancel(first))
    assert await offered_ids(jobs, queue, 2) == [second, third]
    assert await counted(jobs, queue) == {JobState.OFFERED: 2, JobState.CANCELLED: 1}


@on_postgres
async def test_a_lost_accept_is_one_attempt(jobs: JobStore, queue: JobQueue, failpoints: Failpoints) -> None:
    [job_id] = await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    lose_the_commit(failpoints, "report")
    assert (await report(jobs, Accept(one.lease))).state is JobState.RUNNING
    assert len((await jobs.job(job_id)).history) == 1
    lose_the_commit(failpoints, "report")
    assert (await report(jobs, Heartbeat(one.lease))).state is JobState.RUNNING
    assert await counted(jobs, queue) == {JobState.RUNNING: 1}


@on_postgres
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("way", END)
async def test_a_lost_end_of_an_attempt_is_one_end(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints, clock: ManualClock, way: str, lane: Lane | None
) -> None:
    [job_id, _] = await enqueue(jobs, queue, draft(lane=lane), draft(lane=lane, delay_ms=50_000))
    lease = await start(jobs, queue)

    async def run_again() -> None:
        await clock.advance(seconds=1)
        await offer(jobs, queue, 1)

    lose_the_commit(failpoints, "report", run_again)
    answer = await report(jobs, END[way](Accept(lease)))
    job = await jobs.job(job_id)
    assert (job.attempts, job.failures) == (1, int(way.startswith("fail")))
    assert len(await event_kinds(jobs, job_id)) == 1
    ended = way in ("complete", "fail for good")
    assert (answer.state in (JobState.SUCCEEDED, JobState.DEAD)) is ended
    assert job.state is (answer.state if ended else JobState.OFFERED)
    assert await counted(jobs, queue) == {job.state: 1, JobState.SCHEDULED: 1}


@on_postgres
async def test_a_lost_cancellation_is_one(jobs: JobStore, queue: JobQueue, failpoints: Failpoints) -> None:
    [job_id] = await enqueue(jobs, queue)
    lease = await start(jobs, queue)

    async def succeed() -> None:
        await finish(jobs, lease)

    lose_the_commit(failpoints, "cancel", succeed)
    assert (await jobs.cancel(job_id)).state is JobState.SUCCEEDED
    assert await event_kinds(jobs, job_id) == ["job.cancel_requested", "job.succeeded"]


@on_postgres
async def test_a_lost_retry_is_one(jobs: JobStore, queue: JobQueue, failpoints: Failpoints) -> None:
    [job_id] = await enqueue(jobs, queue)
    await fail(jobs, await start(jobs, queue), permanent=True)

    async def run() -> None:
        await start(jobs, queue)

    lose_the_commit(failpoints, "retry", run)
    assert (await jobs.retry(job_id)).state is JobState.RUNNING
    assert await event_kinds(jobs, job_id) == ["job.dead", "job.retried"]
    assert await counted(jobs, queue) == {JobState.RUNNING: 1}


@on_postgres
async def test_a_lost_advance_has_effect_once(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, failpoints: Failpoints
) -> None:
    [job_id] = await enqueue(jobs, queue)
    await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    lose_the_answer(failpoints, "jobs.advance.committed", ConnectionError)
    await advance(jobs)
    job = await jobs.job(job_id)
    assert (job.state, job.losses) == (JobState.RETRYING, 1)
    assert await counted(jobs, queue) == {JobState.RETRYING: 1}


class _RolledBackError(Exception):
    """Ends a transaction as a lost connection does that never committed."""


async def test_an_offer_that_was_rolled_back_is_not_taken_for_another_workers(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(jobs, ScriptedJobs)
    run = jobs._runner.run  # noqa: SLF001 - no failpoint lies between the last statement and the commit
    turn = offering.Turn(queue, 1, "one", "")
    around = Surroundings(CountedIds(), JobLimits(), lambda: 0.5)
    [job_id] = await enqueue(jobs, queue)

    def rolled_back(tx: Tx) -> Script[None]:
        made = yield from offering.offer(tx, around, turn)
        assert [one.lease.job_id for one in made.offers] == [job_id]
        raise _RolledBackError

    with pytest.raises(_RolledBackError):
        await run("offer", rolled_back)
    [theirs] = await offer(jobs, queue, 1, "other")
    made = await run("offer", partial(offering.offer, around=around, turn=turn))
    assert (theirs.lease.job_id, made.offers) == (job_id, [])


@on_postgres
async def test_a_lost_retry_is_not_made_again_after_the_job_has_failed_anew(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints
) -> None:
    [job_id] = await enqueue(jobs, queue)
    await fail(jobs, await start(jobs, queue), permanent=True)

    async def fail_again() -> None:
        await fail(jobs, await start(jobs, queue))

    lose_the_commit(failpoints, "retry", fail_again)
    assert (await jobs.retry(job_id)).state is JobState.RETRYING
    assert await event_kinds(jobs, job_id) == ["job.dead", "job.retried", "job.failed"]


@on_postgres
async def test_a_lost_cancellation_is_not_made_again_after_a_retry(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints
) -> None:
    [job_id] = await enqueue(jobs, queue)
    lose_the_commit(failpoints, "cancel", lambda: jobs.retry(job_id))
    assert (await jobs.cancel(job_id)).state is JobState.QUEUED
    assert await event_kinds(jobs, job_id) == ["job.cancelled", "job.retried"]
