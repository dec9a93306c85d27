from __future__ import annotations

import asyncio

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Failure, JobEvent, Lease
from penstock.domain.job_errors import JobDoesNotExist, JobInvalid, LeaseLost, TooManyEvents
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.store.job_port import Complete, Fail, Heartbeat, JobStore, Release
from penstock.testing import ManualClock
from tests.support.interleaving import lose_the_answer
from tests.support.job_lives import add
from tests.support.job_steps import report, start
from tests.support.stores import Home, on_postgres


async def everything(jobs: JobStore, job_id: str) -> tuple[list[JobEvent], object]:
    """All that a stray event could change."""
    return (await jobs.events(job_id, limit=1_000)).events, await jobs.job(job_id)


async def test_an_event_is_numbered_and_kept(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    await clock.advance(seconds=1)
    event = await jobs.publish(lease, "e1", "progress", b'{"done": 1}')
    assert event == JobEvent(seq=1, attempt=1, kind="progress", data=b'{"done": 1}', at_ms=clock.now_ms())
    second = await jobs.publish(lease, "e2", "progress", b'{"done": 2}')
    assert second.seq == 2
    assert (await jobs.events(lease.job_id, limit=10)).events == [event, second]


async def test_an_event_published_again_is_the_same_event(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    first = await jobs.publish(lease, "e1", "progress", b"1")
    await clock.advance(seconds=1)
    assert await jobs.publish(lease, "e1", "progress", b"1") == first
    assert (await jobs.events(lease.job_id, limit=10)).events == [first]


async def test_an_event_whose_answer_was_lost_is_published_once(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints
) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    lose_the_answer(failpoints, "jobs.publish.committed")
    with pytest.raises(Exception, match="the answer was lost"):
        await jobs.publish(lease, "e1", "progress", b"1")
    # The attempt ends before the worker tries again; what was published stays published.
    await report(jobs, Complete(lease))
    event = await jobs.publish(lease, "e1", "progress", b"1")
    assert event.seq == 1
    assert [told.kind for told in (await jobs.events(lease.job_id, limit=10)).events] == ["progress", "job.succeeded"]


@on_postgres
async def test_a_commit_that_is_unknown_publishes_once(jobs: JobStore, queue: JobQueue, failpoints: Failpoints) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    lose_the_answer(failpoints, "jobs.publish.committed", ConnectionResetError)
    event = await jobs.publish(lease, "e1", "progress", b"1")
    assert event.seq == 1
    assert (await jobs.events(lease.job_id, limit=10)).events == [event]


async def test_ids_of_events_belong_to_their_jobs(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    await add(jobs, queue)
    first, second = await start(jobs, queue), await start(jobs, queue)
    assert (await jobs.publish(first, "e1", "progress", b"1")).seq == 1
    assert (await jobs.publish(second, "e1", "progress", b"2")).seq == 1


async def test_concurrent_events_are_numbered_without_gaps(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    published = await asyncio.gather(
        *(jobs.publish(lease, f"e{number}", "progress", b"%d" % number) for number in range(100))
    )
    assert sorted(event.seq for event in published) == list(range(1, 101))
    told = (await jobs.events(lease.job_id, limit=1_000)).events
    assert told == sorted(published, key=lambda event: event.seq)


@on_postgres
async def test_two_nodes_number_events_without_gaps(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    other = (await home.open()).jobs
    await add(jobs, queue)
    lease = await start(jobs, queue)
    published = await asyncio.gather(
        *(node.publish(lease, f"e{number // 2}", "progress", b"1") for number in range(60) for node in (jobs, other))
    )
    # Each id came four times.
    assert sorted({event.seq for event in published}) == list(range(1, 31))
    assert len((await other.events(lease.job_id, limit=1_000)).events) == 30


async def test_who_listens_is_told(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    told: asyncio.Queue[str] = asyncio.Queue()
    jobs.listen(lambda *_: None, told.put_nowait)
    await jobs.publish(lease, "e1", "progress", b"1")
    assert await told.get() == lease.job_id


async def test_a_lease_that_lapsed_publishes_nothing(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    job_id = await add(jobs, queue)
    lease = await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms - 1)
    await jobs.publish(lease, "e1", "progress", b"1")
    await clock.advance(ms=1)
    before = await everything(jobs, job_id)
    with pytest.raises(LeaseLost):
        await jobs.publish(lease, "e2", "progress", b"2")
    assert await everything(jobs, job_id) == before


async def test_a_heartbeat_lets_a_worker_go_on_publishing(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    for _ in range(3):
        await clock.advance(ms=queue.settings.lease_ms - 1)
        await report(jobs, Heartbeat(lease))
    assert (await jobs.publish(lease, "e1", "progress", b"1")).seq == 1


async def test_an_attempt_that_timed_out_publishes_nothing(jobs: JobStore, clock: ManualClock) -> None:
    queue, _ = await jobs.create_queue("quick", JobQueueSettings(timeout_ms=1_000))
    job_id = await add(jobs, queue)
    lease = await start(jobs, queue)
    await clock.advance(seconds=1)
    before = await everything(jobs, job_id)
    with pytest.raises(LeaseLost):
        await jobs.publish(lease, "e1", "progress", b"1")
    assert await everything(jobs, job_id) == before


async def test_a_worker_whose_job_runs_elsewhere_publishes_nothing(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    job_id = await add(jobs, queue)
    stale = await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    await jobs.advance()
    await clock.advance(ms=queue.settings.retry.backoff_ms)
    lease = await start(jobs, queue)
    assert (lease.job_id, lease.attempt) == (job_id, 2)
    before = await everything(jobs, job_id)
    with pytest.raises(LeaseLost):
        await jobs.publish(stale, "e1", "progress", b"1")
    assert await everything(jobs, job_id) == before
    event = await jobs.publish(lease, "e1", "progress", b"1")
    assert event.attempt == 2
    # The id was another attempt's; the event is not the stale worker's.
    with pytest.raises(LeaseLost):
        await jobs.publish(stale, "e1", "progress", b"1")


async def test_no_lease_but_the_current_one_publishes(jobs: JobStore, queue: JobQueue) -> None:
    job_id = await add(jobs, queue)
    [offer] = (await jobs.offer(queue, count=1, worker="w")).offers
    with pytest.raises(LeaseLost):
        await jobs.publish(offer.lease, "e1", "progress", b"1")  # Not accepted.
    await report(jobs, Release(offer.lease))
    with pytest.raises(LeaseLost):
        await jobs.publish(offer.lease, "e1", "progress", b"1")
    lease = await start(jobs, queue)
    for stray in (Lease(job_id, lease.attempt, lease.fence + 1), Lease(job_id, lease.attempt + 1, lease.fence)):
        with pytest.raises(LeaseLost):
            await jobs.publish(stray, "e1", "progress", b"1")
    await report(jobs, Fail(lease, Failure(kind="Broken", permanent=True)))
    with pytest.raises(LeaseLost):
        await jobs.publish(lease, "e1", "progress", b"1")
    with pytest.raises(JobDoesNotExist):
        await jobs.publish(Lease("job", 1, 1), "e1", "progress", b"1")


async def test_a_job_has_so_many_events_and_no_more(jobs: JobStore) -> None:
    queue, _ = await jobs.create_queue("terse", JobQueueSettings(events_max=2))
    job_id = await add(jobs, queue)
    lease = await start(jobs, queue)
    for number in range(2):
        await jobs.publish(lease, f"e{number}", "progress", b"1")
    before = await everything(jobs, job_id)
    with pytest.raises(TooManyEvents):
        await jobs.publish(lease, "e2", "progress", b"1")
    assert await everything(jobs, job_id) == before
    assert (await jobs.publish(lease, "e1", "progress", b"1")).seq == 2
    # How it ends is told all the same.
    await report(jobs, Complete(lease))
    assert (await jobs.events(job_id, limit=10)).events[-1].kind == "job.succeeded"


async def test_a_worker_cannot_take_the_ids_of_the_services_own_events(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    with pytest.raises(JobInvalid):
        await jobs.publish(lease, "~1", "progress", b"1")
