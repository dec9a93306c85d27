"""Jobs: what lasts a while is measured by the time that passes, and shown by the wall clock."""

from __future__ import annotations

from penstock.domain.gather import GatherState
from penstock.domain.job import JobState
from penstock.domain.job_errors import JobRefused, LeaseLost
from penstock.domain.job_queue import Rate
from penstock.domain.limits import HOUR_MS, MINUTE_MS
from penstock.store.job_port import Accept, Enqueued, Heartbeat
from penstock.store.port import Store
from tests.support import job_steps
from tests.support.gathers import open_gather
from tests.support.machine import Machine, after_a_step, after_any_step
from tests.support.stores import on_sqlite


@after_a_step
async def test_offers_and_leases_and_backoffs_of_jobs_last_as_long_as_they_should(
    store: Store, machine: Machine, hours: int
) -> None:
    jobs = store.jobs
    queue = await job_steps.make_queue(jobs, offer_ms=10_000, lease_ms=30_000)
    [job_id] = await job_steps.enqueue(jobs, queue)
    [missed] = await job_steps.offer(jobs, queue)
    machine.step(hours=hours)
    await machine.wait(ms=9_999)
    assert await job_steps.offer(jobs, queue) == []
    await machine.wait(ms=1)
    [taken] = await job_steps.offer(jobs, queue)
    assert taken.lease.fence > missed.lease.fence
    accepted = await job_steps.report(jobs, Accept(taken.lease))
    machine.step(hours=hours)
    await machine.wait(ms=29_999)
    beat = await job_steps.report(jobs, Heartbeat(taken.lease))
    assert accepted.until_ms is not None
    assert beat.until_ms is not None
    machine.step(hours=-hours)
    await machine.wait(ms=30_000)
    assert isinstance(await job_steps.refused(jobs, Heartbeat(taken.lease)), LeaseLost)
    assert await job_steps.state_of(jobs, job_id) is JobState.RETRYING
    machine.step(hours=-hours)
    await machine.wait(ms=999)
    assert await job_steps.offer(jobs, queue) == []
    await machine.wait(ms=1)
    assert await job_steps.offered_ids(jobs, queue) == [job_id]


@after_a_step
async def test_a_job_expires_when_its_time_has_passed(store: Store, machine: Machine, hours: int) -> None:
    jobs = store.jobs
    queue = await job_steps.make_queue(jobs)
    [job_id] = await job_steps.enqueue(jobs, queue, job_steps.draft(expires_in_ms=10_000))
    machine.step(hours=hours)
    await machine.wait(ms=9_999)
    await job_steps.advance(jobs)
    assert await job_steps.state_of(jobs, job_id) is JobState.QUEUED
    machine.step(hours=-hours)
    await machine.wait(ms=1)
    assert await job_steps.offer(jobs, queue) == []
    assert await job_steps.state_of(jobs, job_id) is JobState.CANCELLED


@after_a_step
async def test_a_rate_and_a_key_are_kept_by_the_time_that_passes(store: Store, machine: Machine, hours: int) -> None:
    jobs = store.jobs
    queue = await job_steps.make_queue(jobs, rate=Rate(per_second=1, burst=1), key_ttl_ms=HOUR_MS)
    key = job_steps.key_of("k")
    [first] = await job_steps.enqueue(jobs, queue, job_steps.draft(idempotency_key=key))
    machine.step(hours=hours)
    await machine.wait(ms=999)
    refused = await job_steps.enqueue_one(jobs, queue)
    assert isinstance(refused, JobRefused)
    assert refused.retry_after_ms == 1
    await machine.wait(ms=1)
    await job_steps.enqueue(jobs, queue)
    await machine.wait(ms=HOUR_MS - 1_001)
    again = await job_steps.enqueue_one(jobs, queue, job_steps.draft(idempotency_key=key))
    assert again == Enqueued(first, JobState.QUEUED, new=False)
    await machine.wait(ms=1)
    assert await job_steps.enqueue(jobs, queue, job_steps.draft(idempotency_key=key)) != [first]


@on_sqlite
@after_any_step
async def test_jobs_show_the_time_of_the_wall_clock(store: Store, machine: Machine, hours: int) -> None:
    jobs = store.jobs
    queue = await job_steps.make_queue(jobs, offer_ms=10_000, lease_ms=30_000)
    machine.step(hours=hours)
    await machine.wait_until_noticed()
    now_ms = machine.wall_ms
    run_at = job_steps.draft(run_at_ms=now_ms + 60_000, expires_in_ms=90_000)
    [later, soon] = await job_steps.enqueue(jobs, queue, run_at, job_steps.draft())
    [offer] = await job_steps.offer(jobs, queue)
    assert (offer.enqueued_at_ms, offer.accept_by_ms) == (now_ms, now_ms + 10_000)
    reported = await job_steps.report(jobs, Accept(offer.lease))
    assert reported.until_ms == now_ms + 30_000
    delayed = await jobs.job(later)
    assert (delayed.due_at_ms, delayed.expires_at_ms) == (now_ms + 60_000, now_ms + 90_000)
    await job_steps.finish(jobs, offer.lease)
    done = await jobs.job(soon)
    assert (done.finished_at_ms, done.history[0].started_at_ms, done.history[0].ended_at_ms) == (now_ms,) * 3
    assert {event.at_ms for event in (await jobs.events(soon, limit=10)).events} == {now_ms}
    await machine.wait(seconds=60)
    assert await job_steps.offered_ids(jobs, queue) == [later]


@after_a_step
async def test_a_gather_expires_by_the_time_that_passes(store: Store, machine: Machine, hours: int) -> None:
    jobs = store.jobs
    queue = await job_steps.make_queue(jobs)
    gather_id, _ = await open_gather(jobs, queue, 1, expires_in_ms=MINUTE_MS)
    machine.step(hours=hours)
    await machine.wait(ms=MINUTE_MS - 1)
    before = await jobs.gather(gather_id)
    assert before.state is GatherState.WAITING
    await machine.wait(ms=1)
    after = await jobs.gather(gather_id)
    assert (after.state, after.ended_at_ms) == (GatherState.EXPIRED, before.expires_at_ms)
