"""Expiry: a job that has not started by then is cancelled, and never starts."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.job import EXPIRED, Failure, Job, JobState, Lane, Lease, StartRate
from penstock.domain.job_errors import LeaseLost
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import Accept, Fail, JobStore, LeaseState, Release, Report, Snooze
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.job_lives import add, add_many
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    event_kinds,
    finish,
    group,
    make_queue,
    offer,
    offered_ids,
    refused,
    report,
    start,
    state_of,
)
from tests.support.stores import Reopen

EXPIRES_MS = 5_000
"""Less than an offer lasts."""


async def expired(jobs: JobStore, job_id: str) -> Job:
    """Look up a job, and check that it has expired."""
    job = await jobs.job(job_id)
    assert (job.state, job.due_at_ms, job.expires_at_ms, job.failures) == (JobState.CANCELLED, None, None, 0)
    assert job.failure is not None
    assert job.failure.kind == EXPIRED
    [*_, event] = (await jobs.events(job_id, limit=100)).events
    assert (event.kind, event.data) == ("job.cancelled", b'{"reason":"expired"}')
    return job


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.SCHEDULED, JobState.OFFERED])
async def test_what_has_not_started_by_its_expiry_is_cancelled(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, state: JobState
) -> None:
    delay_ms = EXPIRES_MS - 1 if state is JobState.SCHEDULED else 0
    job_id = await add(jobs, queue, expires_in_ms=EXPIRES_MS, delay_ms=delay_ms)
    offers = await offer(jobs, queue) if state is JobState.OFFERED else []
    job = await jobs.job(job_id)
    expires_at_ms = clock.now_ms() + EXPIRES_MS
    assert (job.state, job.expires_at_ms) == (state, expires_at_ms)
    assert [one.accept_by_ms for one in offers] == [expires_at_ms] * len(offers)
    assert [one.accept_in_ms for one in offers] == [EXPIRES_MS] * len(offers)
    if state is not JobState.SCHEDULED:
        assert await jobs.advance() == EXPIRES_MS
        await clock.advance(ms=EXPIRES_MS - 1)
        await advance(jobs)
        assert await state_of(jobs, job_id) is state
        await clock.advance(ms=1)
    else:
        # Nobody looked when it came due.
        await clock.advance(ms=EXPIRES_MS)
    assert await jobs.advance() is None
    job = await expired(jobs, job_id)
    assert job.finished_at_ms == clock.now_ms()
    assert await counted(jobs, queue) == {JobState.CANCELLED: 1}
    for one in offers:
        assert isinstance(await refused(jobs, Accept(one.lease)), LeaseLost)


async def test_an_expired_job_is_not_offered_though_nobody_looked(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    """However many there are: one call gives effect to a bounded number."""
    assert isinstance(jobs, ScriptedJobs)
    few = jobs.limited(JobLimits(due_rows_max=2))
    gone = await add_many(few, queue, 5, expires_in_ms=EXPIRES_MS)
    [late] = await enqueue(few, queue, draft(priority=0, expires_in_ms=EXPIRES_MS + 1))
    await clock.advance(ms=EXPIRES_MS)
    assert await offered_ids(few, queue) == [late]
    assert await counted(few, queue) == {JobState.CANCELLED: 2, JobState.QUEUED: 3, JobState.OFFERED: 1}
    await advance(few)
    for job_id in gone:
        await expired(few, job_id)


async def test_tasks_make_no_difference(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    assert isinstance(jobs, ScriptedJobs)
    few = jobs.limited(JobLimits(due_rows_max=1))
    await add_many(few, queue, 4, expires_in_ms=EXPIRES_MS)
    last = await add(few, queue)
    await clock.advance(ms=EXPIRES_MS)
    offers = await few.offer(queue, count=5, worker="w", tasks=("mail", "other"))
    assert [one.lease.job_id for one in offers.offers] == [last]


@pytest.mark.parametrize("how", ["release", "snooze", "fail", "lose"])
async def test_a_job_that_has_started_does_not_expire(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, how: str
) -> None:
    job_id = await add(jobs, queue, expires_in_ms=EXPIRES_MS)
    lease = await start(jobs, queue)
    assert (await jobs.job(job_id)).expires_at_ms is None
    ends: dict[str, Report] = {
        "release": Release(lease),
        "snooze": Snooze(lease, 1_000),
        "fail": Fail(lease, Failure(kind="Busy")),
    }
    if how in ends:
        await report(jobs, ends[how])
    await clock.advance(ms=queue.settings.lease_ms)
    await advance(jobs)
    await clock.advance(seconds=60)
    again = await start(jobs, queue)
    assert again.job_id == job_id
    await finish(jobs, again)


async def test_an_offer_that_comes_back_leaves_the_expiry_as_it_was(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    job_id = await add(jobs, queue, expires_in_ms=3 * EXPIRES_MS)
    [declined] = await offer(jobs, queue)
    assert (await report(jobs, Release(declined.lease))).until_ms is None
    assert await offered_ids(jobs, queue) == [job_id]
    await clock.advance(ms=queue.settings.offer_ms)
    assert await offered_ids(jobs, queue) == [job_id]
    await clock.advance(ms=EXPIRES_MS)
    await advance(jobs)
    await expired(jobs, job_id)


async def test_a_worker_whose_offer_expired_did_nothing_wrong(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await add(jobs, queue, expires_in_ms=EXPIRES_MS)
    [one] = await offer(jobs, queue)
    await clock.advance(ms=EXPIRES_MS)
    for _ in range(2):
        assert [status.state for status in await jobs.leases([one.lease])] == [LeaseState.OVER]
        await advance(jobs)


async def test_offers_of_a_repeated_request_leave_out_what_has_expired(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    rate = StartRate(key="api", per_second=1, burst=2)
    plain = await add(jobs, queue, expires_in_ms=EXPIRES_MS)
    await add(jobs, queue, expires_in_ms=EXPIRES_MS, start_rate=rate)
    kept = await add(jobs, queue, expires_in_ms=EXPIRES_MS + 1)
    assert len((await jobs.offer(queue, count=3, worker="w", turn=7)).offers) == 3
    again = await jobs.offer_again([queue], count=3, turn=7)
    assert {one.lease.job_id: one.accept_in_ms for one in again}[plain] == EXPIRES_MS
    await clock.advance(ms=EXPIRES_MS)
    assert [one.lease.job_id for one in await jobs.offer_again([queue], count=3, turn=7)] == [kept]


# -- what it gives back ---------------------------------------------------------------------------


@pytest.mark.parametrize("lane", [group("g"), Lane(key="k")])
async def test_it_gives_up_its_place_in_line(jobs: JobStore, queue: JobQueue, clock: ManualClock, lane: Lane) -> None:
    first = await add(jobs, queue, lane=lane, expires_in_ms=EXPIRES_MS)
    second = await add(jobs, queue, lane=lane, expires_in_ms=EXPIRES_MS)
    third = await add(jobs, queue, lane=lane)
    assert await offered_ids(jobs, queue) == [first]
    await clock.advance(ms=EXPIRES_MS)
    assert await offered_ids(jobs, queue) == [third]
    for job_id in (first, second):
        await expired(jobs, job_id)


@pytest.mark.parametrize("looked", [True, False])
async def test_its_unique_key_is_free(jobs: JobStore, queue: JobQueue, clock: ManualClock, *, looked: bool) -> None:
    first = await add(jobs, queue, unique_key="u", lane=Lane(key="k"), expires_in_ms=EXPIRES_MS)
    await clock.advance(ms=EXPIRES_MS)
    if looked:
        await advance(jobs)
    # Both in one call: the second stands for the first of them, not for the one that expired.
    one, other = draft(unique_key="u", lane=Lane(key="j")), draft(unique_key="u")
    answers = await jobs.enqueue(queue, [one, other])
    assert [answer.job_id for answer in answers] == [one.id, one.id]  # type: ignore[union-attr]
    await expired(jobs, first)
    assert await counted(jobs, queue) == {JobState.CANCELLED: 1, JobState.QUEUED: 1}
    assert await offered_ids(jobs, queue) == [one.id]


async def test_its_token_is_given_back(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    daily = StartRate(key="api", per_second=0.000_02)
    first = await add(jobs, queue, start_rate=daily, expires_in_ms=EXPIRES_MS)
    second = await add(jobs, queue, start_rate=daily)
    [one] = await offer(jobs, queue)
    await clock.advance(ms=EXPIRES_MS)
    assert isinstance(await refused(jobs, Accept(one.lease)), LeaseLost)
    await expired(jobs, first)
    assert await offered_ids(jobs, queue) == [second]


async def test_those_who_wait_for_a_token_expire_and_let_others_pass(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    assert isinstance(jobs, ScriptedJobs)
    few = jobs.limited(JobLimits(due_rows_max=1))
    slow = StartRate(key="api", per_second=0.1)
    first, *gone = await add_many(few, queue, 4, start_rate=slow, expires_in_ms=EXPIRES_MS)
    last = await add(few, queue, start_rate=slow)
    assert await offered_ids(few, queue) == [first]
    await report(few, Accept(Lease(first, 1, 1)))
    await clock.advance(seconds=10)
    assert await offered_ids(few, queue, 1) == [last]
    await advance(few)
    for job_id in gone:
        await expired(few, job_id)


# -- somebody asks for it -------------------------------------------------------------------------


@pytest.mark.parametrize("looked", [True, False])
async def test_retried_by_hand_it_waits_for_as_long_as_it_takes(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, *, looked: bool
) -> None:
    job_id = await add(jobs, queue, expires_in_ms=EXPIRES_MS, unique_key="u", lane=group("g"))
    await clock.advance(ms=EXPIRES_MS)
    if looked:
        await advance(jobs)
    job = await jobs.retry(job_id)
    assert (job.state, job.due_at_ms, job.expires_at_ms, job.failure) == (JobState.QUEUED, None, None, None)
    await clock.advance(seconds=60)
    await advance(jobs)
    assert await event_kinds(jobs, job_id) == ["job.cancelled", "job.retried"]
    # Cancelled by somebody, it does not look expired.
    assert (await jobs.cancel(job_id)).failure is None
    await jobs.retry(job_id)
    await finish(jobs, await start(jobs, queue))


async def test_a_job_that_is_due_only_after_its_expiry_does_not_wait_for_that(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    """A node whose clock differs from the store's may take one."""
    job_id = await add(jobs, queue, expires_in_ms=EXPIRES_MS, run_at_ms=clock.now_ms() + 2 * EXPIRES_MS)
    assert await jobs.advance() == EXPIRES_MS
    await clock.advance(ms=EXPIRES_MS)
    await advance(jobs)
    await expired(jobs, job_id)


async def test_a_delayed_job_that_is_called_up_still_expires(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    job_id = await add(jobs, queue, expires_in_ms=EXPIRES_MS, delay_ms=1_000)
    await jobs.retry(job_id)
    await clock.advance(ms=EXPIRES_MS)
    assert await offer(jobs, queue) == []
    await expired(jobs, job_id)


async def test_cancelled_after_its_expiry_it_is_expired(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    job_id = await add(jobs, queue, expires_in_ms=EXPIRES_MS)
    await clock.advance(ms=EXPIRES_MS)
    await jobs.cancel(job_id)
    await expired(jobs, job_id)
    assert await event_kinds(jobs, job_id) == ["job.cancelled"]


async def test_a_restart_makes_no_difference(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, reopen: Reopen
) -> None:
    job_id = await add(jobs, queue, expires_in_ms=EXPIRES_MS)
    jobs = (await reopen()).jobs
    assert await jobs.advance() == EXPIRES_MS
    await clock.advance(ms=EXPIRES_MS)
    assert await offer(jobs, queue) == []
    await expired(jobs, job_id)


async def test_on_a_strict_queue_too(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, "strict", strict=True)
    fields: dict[str, Any] = {"idempotency_key": b"k" * 32, "expires_in_ms": EXPIRES_MS}
    job_id = await add(jobs, queue, **fields)
    await clock.advance(ms=EXPIRES_MS)
    await advance(jobs)
    await expired(jobs, job_id)
    # Its key stands for it.
    [answer] = await jobs.enqueue(queue, [draft(**fields)])
    assert (answer.job_id, answer.state) == (job_id, JobState.CANCELLED)  # type: ignore[union-attr]
