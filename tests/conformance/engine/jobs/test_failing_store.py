"""A store that fails, or whose answer is lost, at each step of a worker's way: nothing is lost or left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Failure, JobState, Lease
from penstock.engine.jobs.jobs import Jobs
from penstock.engine.jobs.returns import Returns
from penstock.store.job_port import Accept, Complete, Fail, Release, Report
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.job_service import accept, enqueue, make_queue, poll

WAIT_MS = 30_000
PLACES = ["begun", "committed"]


def throttle() -> None:
    raise StoreUnavailable("The store is throttled.")


@pytest.mark.parametrize("place", PLACES)
async def test_an_enqueue_that_failed_is_repeated_with_its_key_and_makes_one_job(
    jobs: Jobs, failpoints: Failpoints, place: str
) -> None:
    await make_queue(jobs)
    failpoints.arm(f"jobs.enqueue.{place}", throttle)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs, idempotency_key="once")
    again = await enqueue(jobs, idempotency_key="once")
    assert again.replayed == (place == "committed")
    assert len(await poll(jobs, 10)) == 1


async def test_an_offer_that_the_store_refused_leaves_the_job_where_it_was(jobs: Jobs, failpoints: Failpoints) -> None:
    stored = await enqueue(jobs)
    failpoints.arm("jobs.offer.begun", throttle)
    with pytest.raises(StoreUnavailable):
        await poll(jobs, wait_ms=WAIT_MS)
    assert (await jobs.looking.job(stored.job_id)).state is JobState.QUEUED
    [offer] = await poll(jobs)
    assert (offer.lease.job_id, offer.lease.attempt) == (stored.job_id, 1)


async def test_a_service_that_stops_does_not_wait_for_a_store_that_fails(
    jobs: Jobs, store: Store, failpoints: Failpoints, clock: ManualClock
) -> None:
    await make_queue(jobs, offer_ms=3_600_000)
    await enqueue(jobs)
    returns = Returns(store.jobs, clock, jobs.limits)
    failpoints.arm("jobs.report.begun", throttle)
    returns.give_back(await poll(jobs))
    await returns.settle(seconds_max=0.01)  # The clock stands still, and so does whoever would try again.
    await returns.settle(seconds_max=0)


@pytest.mark.parametrize("place", PLACES)
async def test_an_accept_that_failed_is_repeated(jobs: Jobs, failpoints: Failpoints, place: str) -> None:
    await enqueue(jobs)
    [offer] = await poll(jobs)
    failpoints.arm(f"jobs.report.{place}", throttle)
    with pytest.raises(StoreUnavailable):
        await jobs.reports.report(Accept(offer.lease))
    assert (await jobs.reports.report(Accept(offer.lease))).state is JobState.RUNNING
    job = await jobs.looking.job(offer.lease.job_id)
    assert (job.attempts, len(job.history)) == (1, 1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (lambda lease: Complete(lease, b"1"), JobState.SUCCEEDED),
        (lambda lease: Fail(lease, Failure(kind="Bug", permanent=True)), JobState.DEAD),
        (Release, JobState.QUEUED),
    ],
)
async def test_an_ending_that_failed_is_repeated_and_answered_as_the_first_time(
    jobs: Jobs, failpoints: Failpoints, place: str, ending: Callable[[Lease], Report], state: JobState
) -> None:
    await enqueue(jobs)
    offer = await accept(jobs)
    failpoints.arm(f"jobs.report.{place}", throttle)
    with pytest.raises(StoreUnavailable):
        await jobs.reports.report(ending(offer.lease))
    assert (await jobs.reports.report(ending(offer.lease))).state is state
    assert (await jobs.looking.job(offer.lease.job_id)).state is state


@pytest.mark.parametrize("place", PLACES)
async def test_an_event_whose_publishing_failed_is_repeated_and_kept_once(
    jobs: Jobs, failpoints: Failpoints, place: str
) -> None:
    await enqueue(jobs)
    offer = await accept(jobs)
    failpoints.arm(f"jobs.publish.{place}", throttle)
    with pytest.raises(StoreUnavailable):
        await jobs.reports.publish(offer.lease, "first", "progress", b"1")
    event = await jobs.reports.publish(offer.lease, "first", "progress", b"1")
    assert (await jobs.looking.events(offer.lease.job_id)).events == [event]


async def test_a_stream_ends_when_the_store_fails_and_leaves_nothing_offered(
    jobs: Jobs, failpoints: Failpoints
) -> None:
    stored = {(await enqueue(jobs)).job_id for _ in range(4)}
    stream = jobs.streams.open(["orders"], credit=10)
    batches = stream.batches()
    assert len(await anext(batches)) == 4
    failpoints.arm("jobs.offer.begun", throttle)
    with pytest.raises(StoreUnavailable):
        await anext(batches)
    stream.close()
    await jobs.settle()
    back = await poll(jobs, 10)
    assert {offer.lease.job_id for offer in back} == stored
    assert {offer.lease.attempt for offer in back} == {1}
