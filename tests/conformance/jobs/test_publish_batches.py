"""Events published by reports: many of several jobs at once, each report as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import JobEvent, JobState, Lease
from penstock.domain.job_errors import JobDoesNotExist, JobInvalid, JobStateConflict, LeaseLost, TooManyEvents
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.store.job_port import Accept, Complete, Heartbeat, JobStore, NewEvent, Publish, Release, Report, Reported
from penstock.testing import ManualClock
from tests.support.interleaving import lose_the_answer
from tests.support.job_lives import add
from tests.support.job_steps import event_kinds, group, make_queue, offer, refused, report, start
from tests.support.stores import Home, on_postgres


def progress(lease: Lease, *ids: str) -> Publish:
    """Events of which each has its id as its data."""
    return Publish(lease, tuple(NewEvent(event_id, "progress", b'"%b"' % event_id.encode()) for event_id in ids))


async def published(jobs: JobStore, lease: Lease) -> list[str]:
    """What workers have published of a job, in order."""
    found = (await jobs.events(lease.job_id, limit=1_000)).events
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    return [event.data.decode().strip('"') for event in found if event.kind == "progress"]


async def running(jobs: JobStore, queue: JobQueue) -> Lease:
    await add(jobs, queue)
    return await start(jobs, queue)


async def test_events_of_several_jobs_are_kept_in_their_order(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    first, second = await running(jobs, queue), await running(jobs, queue)
    await clock.advance(seconds=1)
    lease_ms = queue.settings.lease_ms
    answers = await jobs.report([progress(first, "b", "a"), progress(second, "x"), progress(first, "c")])
    until_ms = clock.now_ms() - 1_000 + lease_ms
    assert answers == [Reported(JobState.RUNNING, until_ms, attempt=1, lease_ms=lease_ms - 1_000)] * 3
    assert (await jobs.events(first.job_id, limit=10)).events == [
        JobEvent(seq=number, attempt=1, kind="progress", data=b'"%b"' % data, at_ms=clock.now_ms())
        for number, data in enumerate((b"b", b"a", b"c"), 1)
    ]
    assert await published(jobs, second) == ["x"]


async def test_events_extend_no_lease(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    lease = await running(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms - 1)
    assert (await report(jobs, progress(lease, "a"))).lease_ms == 1
    await clock.advance(ms=1)
    assert isinstance(await refused(jobs, progress(lease, "b")), LeaseLost)
    assert await published(jobs, lease) == ["a"]


async def test_events_come_before_the_end_that_follows_them(jobs: JobStore, queue: JobQueue) -> None:
    lease = await running(jobs, queue)
    answers = await jobs.report([progress(lease, "a", "b"), Complete(lease), progress(lease, "c")])
    assert [type(answer) for answer in answers] == [Reported, Reported, LeaseLost]
    assert await event_kinds(jobs, lease.job_id) == ["progress", "progress", "job.succeeded"]


async def test_a_batch_may_begin_publish_and_end(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    [one] = await offer(jobs, queue)
    answers = await jobs.report([progress(one.lease, "early"), Accept(one.lease), progress(one.lease, "a")])
    assert [type(answer) for answer in answers] == [JobStateConflict, Reported, Reported]
    assert await published(jobs, one.lease) == ["a"]


async def test_a_report_that_is_refused_stores_nothing_and_stops_no_other(jobs: JobStore) -> None:
    queue = await make_queue(jobs, "terse", events_max=3)
    first, second = await running(jobs, queue), await running(jobs, queue)
    stray = Lease(first.job_id, first.attempt, first.fence + 1)
    answers = await jobs.report(
        [
            progress(first, "a", "b"),
            progress(first, "c", "d"),
            progress(stray, "e"),
            progress(Lease("nobody", 1, 1), "f"),
            progress(second, "g", "~1"),
            progress(second, "h"),
            progress(first, "i"),
            Complete(first),
        ]
    )
    assert [type(answer) for answer in answers] == [
        Reported,
        TooManyEvents,
        LeaseLost,
        JobDoesNotExist,
        JobInvalid,
        Reported,
        Reported,
        Reported,
    ]
    assert await published(jobs, first) == ["a", "b", "i"]
    assert await published(jobs, second) == ["h"]
    # How it ends is said all the same.
    assert (await event_kinds(jobs, first.job_id))[-1] == "job.succeeded"


async def test_an_id_that_is_repeated_is_stored_once(jobs: JobStore, queue: JobQueue) -> None:
    lease = await running(jobs, queue)
    await jobs.publish(lease, "single", "progress", b'"single"')
    await jobs.report([progress(lease, "a", "b", "a"), progress(lease, "b", "single", "c")])
    changed = (NewEvent("d", "progress", b'"d"'), NewEvent("d", "progress", b'"changed"'))
    await jobs.report([progress(lease, "c"), Publish(lease, changed)])
    assert await published(jobs, lease) == ["single", "a", "b", "c", "d"]
    assert (await jobs.publish(lease, "d", "progress", b"1")).seq == 5


async def test_a_full_job_acknowledges_what_it_has(jobs: JobStore) -> None:
    queue = await make_queue(jobs, "terse", events_max=2)
    lease = await running(jobs, queue)
    for _ in range(2):
        assert (await report(jobs, progress(lease, "a", "b"))).state is JobState.RUNNING
    assert await published(jobs, lease) == ["a", "b"]


@pytest.mark.parametrize("end", [Complete, Release])
async def test_a_batch_whose_answer_was_lost_is_answered_again(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints, end: Callable[[Lease], Report]
) -> None:
    lease = await running(jobs, queue)
    batch = [progress(lease, "a", "b"), end(lease)]
    lose_the_answer(failpoints, "jobs.report.committed")
    with pytest.raises(Exception, match="the answer was lost"):
        await jobs.report(batch)
    again = await jobs.report(batch)
    assert all(isinstance(answer, Reported) for answer in again), again
    assert await published(jobs, lease) == ["a", "b"]


@on_postgres
async def test_a_commit_that_is_unknown_publishes_once(jobs: JobStore, queue: JobQueue, failpoints: Failpoints) -> None:
    lease = await running(jobs, queue)
    lose_the_answer(failpoints, "jobs.report.committed", ConnectionResetError)
    await report(jobs, progress(lease, "a", "b"))
    assert await published(jobs, lease) == ["a", "b"]


async def test_what_an_attempt_published_is_not_the_next_ones(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    stale = await running(jobs, queue)
    await report(jobs, progress(stale, "a"))
    await clock.advance(ms=queue.settings.lease_ms)
    await jobs.advance()
    await clock.advance(ms=queue.settings.retry.backoff_ms)
    lease = await start(jobs, queue)
    assert lease.job_id == stale.job_id
    # Acknowledged again, without a word of the lease that somebody else has.
    assert await report(jobs, progress(stale, "a")) == Reported(JobState.RUNNING, attempt=1)
    assert isinstance(await refused(jobs, progress(stale, "a", "b")), LeaseLost)
    assert isinstance(await refused(jobs, progress(lease, "c", "a")), LeaseLost)
    assert await published(jobs, lease) == ["a"]
    await report(jobs, progress(lease, "c"))
    assert isinstance(await refused(jobs, progress(stale, "c")), LeaseLost)


async def test_jobs_in_lanes_and_strict_queues_publish_too(jobs: JobStore) -> None:
    queue, _ = await jobs.create_queue("strict", JobQueueSettings(strict=True))
    await add(jobs, queue, lane=group("g"), idempotency_key=b"k" * 32)
    lease = await start(jobs, queue)
    await jobs.report([progress(lease, "a"), Heartbeat(lease), progress(lease, "b"), Complete(lease)])
    assert await event_kinds(jobs, lease.job_id) == ["progress", "progress", "job.succeeded"]


async def test_who_listens_is_told(jobs: JobStore, queue: JobQueue) -> None:
    lease = await running(jobs, queue)
    told: asyncio.Queue[str] = asyncio.Queue()
    jobs.listen(lambda *_: None, told.put_nowait)
    await report(jobs, progress(lease, "a", "b"))
    assert await told.get() == lease.job_id


@on_postgres
async def test_two_nodes_number_events_without_gaps(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    other = (await home.open()).jobs
    lease = await running(jobs, queue)
    calls: list[Awaitable[object]] = []
    for number in range(30):
        # Each id comes from both nodes, by a report and by itself.
        ids = (f"{number}.0", f"{number}.1")
        calls += [node.report([progress(lease, *ids)]) for node in (jobs, other)]
        calls += [node.publish(lease, ids[0], "progress", b'"%b"' % ids[0].encode()) for node in (other, jobs)]
    await asyncio.gather(*calls)
    assert sorted(await published(jobs, lease)) == sorted(f"{n}.{m}" for n in range(30) for m in range(2))
