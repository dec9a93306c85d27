from __future__ import annotations

import asyncio

import pytest

from penstock.domain.job import TERMINAL, Failure, JobEvent, JobState
from penstock.domain.job_errors import JobDoesNotExist
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import Complete, Fail, JobStore
from penstock.testing import ManualClock
from tests.support.job_lives import add
from tests.support.job_steps import report, start


async def test_a_new_job_has_no_events(jobs: JobStore, queue: JobQueue) -> None:
    events = await jobs.events(await add(jobs, queue), limit=10)
    assert (events.events, events.state, events.complete) == ([], JobState.QUEUED, True)


async def test_events_are_read_from_a_number_on(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    published = [await jobs.publish(lease, f"e{number}", "progress", b"1") for number in range(5)]

    first = await jobs.events(lease.job_id, limit=2)
    assert (first.events, first.complete) == (published[:2], False)
    second = await jobs.events(lease.job_id, after=2, limit=3)
    assert (second.events, second.complete, second.state) == (published[2:], True, JobState.RUNNING)
    last = await jobs.events(lease.job_id, after=5, limit=3)
    assert (last.events, last.complete) == ([], True)
    beyond = await jobs.events(lease.job_id, after=99, limit=3)
    assert (beyond.events, beyond.complete) == ([], True)


async def test_a_missing_job(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(JobDoesNotExist):
        await jobs.events("job", limit=1)


async def test_events_go_on_across_attempts_and_end_at_the_terminal_state(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    job_id = await add(jobs, queue)
    lease = await start(jobs, queue)
    await jobs.publish(lease, "e1", "progress", b"1")
    await report(jobs, Fail(lease, Failure(kind="Busy")))
    await clock.advance(seconds=3_600)
    lease = await start(jobs, queue)
    await jobs.publish(lease, "e2", "progress", b"2")
    await clock.advance(ms=queue.settings.lease_ms)
    await jobs.advance()
    await clock.advance(seconds=3_600)
    lease = await start(jobs, queue)
    await jobs.publish(lease, "e3", "progress", b"3")
    await report(jobs, Complete(lease))
    told = await jobs.events(job_id, limit=100)
    assert [(event.seq, event.attempt, event.kind) for event in told.events] == [
        (1, 1, "progress"),
        (2, 1, "job.failed"),
        (3, 2, "progress"),
        (4, 2, "job.lost"),
        (5, 3, "progress"),
        (6, 3, "job.succeeded"),
    ]
    assert (told.complete, told.state) == (True, JobState.SUCCEEDED)


async def test_from_replay_to_live_there_is_no_gap_and_no_duplicate(jobs: JobStore, queue: JobQueue) -> None:
    """A reader follows while workers publish at the same time, and sees each event once, in order, to the end."""
    job_id = await add(jobs, queue)
    lease = await start(jobs, queue)
    changed = asyncio.Event()
    jobs.listen(lambda *_: None, lambda _: changed.set())

    async def follow() -> list[JobEvent]:
        seen: list[JobEvent] = []
        while True:
            # Cleared before the look: what is published after it sets it again.
            changed.clear()
            told = await jobs.events(job_id, after=len(seen), limit=7)
            seen += told.events
            if told.complete and told.state in TERMINAL:
                return seen
            if told.complete:
                await changed.wait()

    followers = [asyncio.create_task(follow()) for _ in range(3)]
    for start_at in range(0, 90, 30):
        await asyncio.gather(
            *(jobs.publish(lease, f"e{number}", "progress", b"1") for number in range(start_at, start_at + 30))
        )
    await report(jobs, Complete(lease))
    for seen in await asyncio.gather(*followers):
        assert [event.seq for event in seen] == list(range(1, 92))
        assert seen[-1].kind == "job.succeeded"
