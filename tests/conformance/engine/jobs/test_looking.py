"""People look at jobs: their events from replay to live, their results, and what they do to them."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise

import pytest

from penstock.domain.errors import OverLimit
from penstock.domain.job import Failure, JobEvent, JobState
from penstock.domain.job_errors import JobDoesNotExist, JobInvalid, LeaseLost
from penstock.domain.job_limits import JobLimits
from penstock.domain.operation import JobFilter
from penstock.domain.retry import RetryPolicy
from penstock.engine.jobs.changes import Changes
from penstock.engine.jobs.jobs import Jobs
from penstock.engine.jobs.looking import Looking
from penstock.store.job_port import Accept, Complete, Fail
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.job_service import QUEUE, accept, enqueue, finish, make_queue, poll
from tests.support.stores import Home

UNKNOWN = "00000000-0000-0000-0000-00000000dead"


class Follower:
    """Follows a job's events from some point on, and keeps what it saw."""

    def __init__(self, jobs: Jobs, job_id: str, after: int = 0, stop_after: int | None = None) -> None:
        self.events: list[JobEvent] = []
        self.ended: JobState | None = None
        self._news = jobs.looking.follow(job_id, after=after)
        self._stop_after = stop_after

    async def run(self) -> Follower:
        async with contextlib.aclosing(self._news) as news:
            async for part in news:
                self.events += part.events
                self.ended = part.ended
                if self._stop_after is not None and len(self.events) >= self._stop_after:
                    break
        return self

    @property
    def numbers(self) -> list[int]:
        return [event.seq for event in self.events]


def without_gaps(numbers: list[int]) -> bool:
    return all(later == earlier + 1 for earlier, later in pairwise(numbers))


async def test_events_from_replay_to_live_have_no_gap_and_no_duplicate_across_attempts(jobs: Jobs) -> None:
    await make_queue(jobs, retry=RetryPolicy(backoff_ms=0))
    job_id = (await enqueue(jobs)).job_id
    publishing = asyncio.Event()

    async def work(attempt: int) -> None:
        [offer] = await poll(jobs, wait_ms=30_000)
        await jobs.reports.report(Accept(offer.lease))

        async def publish(worker: int) -> None:
            for number in range(10):
                event_id = f"{attempt}-{worker}-{number}"
                await jobs.reports.publish(offer.lease, event_id, "progress", b"[%d,%d]" % (worker, number))
                publishing.set()

        await asyncio.gather(*(publish(worker) for worker in range(4)))
        if attempt == 1:
            await jobs.reports.report(Fail(offer.lease, Failure(kind="Flaky")))
        else:
            await jobs.reports.report(Complete(offer.lease, b'"done"'))

    followers = [asyncio.create_task(Follower(jobs, job_id).run())]
    working = asyncio.create_task(work(1))
    await publishing.wait()
    # Those who come late, and one who goes away and resumes.
    followers += [asyncio.create_task(Follower(jobs, job_id).run()) for _ in range(3)]
    first = await Follower(jobs, job_id, stop_after=5).run()
    followers.append(asyncio.create_task(Follower(jobs, job_id, after=first.numbers[-1]).run()))
    await working
    await work(2)
    seen = await asyncio.gather(*followers)
    for follower in seen:
        assert without_gaps(follower.numbers)
        assert follower.ended is JobState.SUCCEEDED
        assert follower.events[-1].kind == "job.succeeded"
    for follower in seen[:-1]:
        assert follower.numbers[0] == 1
        assert follower.events == seen[0].events
    assert first.numbers + seen[-1].numbers == seen[0].numbers
    told = [(event.attempt, event.data) for event in seen[0].events if event.kind == "progress"]
    assert len(told) == len(set(told)) == 80
    assert {attempt for attempt, _ in told} == {1, 2}


async def test_an_event_that_nobody_told_of_is_found_within_a_second(
    jobs: Jobs, store: Store, clock: ManualClock
) -> None:
    # As on another node whose word is lost: nobody rings here.
    limits = JobLimits()
    deaf = Looking(store.jobs, Changes(10), clock, limits)
    job_id = (await enqueue(jobs)).job_id
    news = deaf.follow(job_id)
    following = asyncio.ensure_future(anext(news))
    await finish(jobs)
    while not following.done():
        await clock.advance(seconds=1)
    assert (await following).ended is JobState.SUCCEEDED
    await news.aclose()


async def test_events_of_a_finished_job_end_at_once(jobs: Jobs) -> None:
    await enqueue(jobs)
    job_id = await finish(jobs)
    follower = await Follower(jobs, job_id).run()
    assert [event.kind for event in follower.events] == ["job.succeeded"]
    resumed = await Follower(jobs, job_id, after=1).run()
    assert (resumed.events, resumed.ended) == ([], JobState.SUCCEEDED)


async def test_a_follower_gets_signs_of_life_and_ends_when_the_service_stops(jobs: Jobs, clock: ManualClock) -> None:
    job_id = (await enqueue(jobs)).job_id
    news = jobs.looking.follow(job_id)
    first = asyncio.ensure_future(anext(news))
    while not first.done():
        await clock.advance(seconds=1)
    assert (await first).events == []
    last = asyncio.ensure_future(anext(news, None))
    await asyncio.sleep(0)
    jobs.end_waits()
    assert await last is None


async def test_a_result_is_waited_for(jobs: Jobs) -> None:
    job_id = (await enqueue(jobs)).job_id
    waiting = asyncio.create_task(jobs.looking.result(job_id, wait_ms=60_000))
    await finish(jobs, b"[1]")
    job = await waiting
    assert (job.state, job.result) == (JobState.SUCCEEDED, b"[1]")
    assert (await jobs.looking.result(job_id)).result == b"[1]"


async def test_a_wait_for_a_result_ends_at_its_deadline(jobs: Jobs, clock: ManualClock) -> None:
    job_id = (await enqueue(jobs)).job_id
    waiting = asyncio.create_task(jobs.looking.result(job_id, wait_ms=5_000))
    while not waiting.done():
        await clock.advance(seconds=1)
    assert (await waiting).state is JobState.QUEUED
    with pytest.raises(JobInvalid):
        await jobs.looking.result(job_id, wait_ms=60_001)


async def test_what_is_unknown_is_told_so(jobs: Jobs) -> None:
    with pytest.raises(JobDoesNotExist):
        await jobs.looking.result(UNKNOWN, wait_ms=1_000)
    with pytest.raises(JobDoesNotExist):
        await Follower(jobs, UNKNOWN).run()


async def test_only_so_many_may_wait_for_jobs(home: Home) -> None:
    limits = JobLimits(streams_max=1)
    jobs = (await home.engine(job_limits=limits)).jobs
    job_id = (await enqueue(jobs)).job_id
    waiting = asyncio.create_task(Follower(jobs, job_id).run())
    await asyncio.sleep(0)
    with pytest.raises(OverLimit):
        await jobs.looking.result(job_id, wait_ms=1_000)
    waiting.cancel()


async def test_a_job_that_is_cancelled_or_retried_is_told_to_its_worker(jobs: Jobs) -> None:
    await enqueue(jobs)
    offer = await accept(jobs)
    assert (await jobs.looking.cancel(offer.lease.job_id)).cancel_requested
    ended = await jobs.reports.report(Fail(offer.lease, Failure(kind="Stopped")))
    assert ended.state is JobState.CANCELLED
    assert (await jobs.looking.retry(offer.lease.job_id)).state is JobState.QUEUED
    with pytest.raises(LeaseLost):
        await jobs.reports.report(Complete(offer.lease))


async def test_jobs_come_in_pages_the_newest_first(jobs: Jobs) -> None:
    stored = [(await enqueue(jobs, f"task-{number % 2}")).job_id for number in range(5)]
    found: list[str] = []
    before = None
    while True:
        page = await jobs.looking.jobs(JobFilter(queue=QUEUE), before=before, limit=2)
        found += [job.id for job in page.jobs]
        before = page.before
        if before is None:
            break
    assert found == stored[::-1]
    wanted = JobFilter(task="task-1", states=(JobState.QUEUED,))
    assert [job.id for job in (await jobs.looking.jobs(wanted)).jobs] == [stored[3], stored[1]]


@pytest.mark.parametrize("kind", ["end", "problem", "job.succeeded", "job.of-mine"])
async def test_a_worker_cannot_publish_what_the_service_says_itself(jobs: Jobs, kind: str) -> None:
    await enqueue(jobs)
    offer = await accept(jobs)
    with pytest.raises(JobInvalid) as refused:
        await jobs.reports.publish(offer.lease, "1", kind, b"1")
    assert refused.value.field == "kind"
    assert (await jobs.looking.events(offer.lease.job_id)).events == []


async def test_failures_are_cut_and_results_and_events_have_limits(jobs: Jobs) -> None:
    await enqueue(jobs)
    offer = await accept(jobs)
    with pytest.raises(JobInvalid):
        await jobs.reports.report(Complete(offer.lease, b'"' + b"x" * 1_048_576 + b'"'))
    with pytest.raises(JobInvalid):
        await jobs.reports.publish(offer.lease, "1", "large", b'"' + b"x" * 65_536 + b'"')
    failure = Failure(kind="Bug", message="m" * 65_000, details="é" * 65_536, permanent=True)
    await jobs.reports.report(Fail(offer.lease, failure))
    kept = (await jobs.looking.job(offer.lease.job_id)).failure
    assert kept is not None
    assert kept.message == "m" * 65_000
    assert kept.details == "é" * 268
