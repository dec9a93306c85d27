"""Events are filtered by kind and time, and a read looks at a bounded number of them."""

from __future__ import annotations

import msgspec
import pytest

from penstock.domain.job import EventFilter, JobState
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue
from penstock.engine.jobs.changes import Changes
from penstock.engine.jobs.looking import Looking
from penstock.store.job_port import Complete, JobStore
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.job_lives import add
from tests.support.job_steps import report, start

ROWS_MAX = 4


@pytest.fixture
async def job_id(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> str:
    """A finished job with ten events, one a second: eight that alternate, one that is rare, and its end."""
    await add(jobs, queue)
    lease = await start(jobs, queue)
    for number in range(8):
        await jobs.publish(lease, f"e{number}", "line" if number % 2 else "progress", b"%d" % number)
        await clock.advance(seconds=1)
    await jobs.publish(lease, "rare", "rare", b"1")
    await clock.advance(seconds=1)
    await report(jobs, Complete(lease))
    return lease.job_id


@pytest.fixture
def near(jobs: JobStore) -> JobStore:
    """The same jobs, where one read looks at few events."""
    assert isinstance(jobs, ScriptedJobs)
    return jobs.limited(JobLimits(list_rows_max=ROWS_MAX))


async def numbers(jobs: JobStore, job_id: str, **wanted: object) -> list[int]:
    found = await jobs.events(job_id, limit=100, wanted=msgspec.convert(wanted, EventFilter))
    assert (found.complete, found.after) == (True, 10)
    return [event.seq for event in found.events]


async def test_events_of_some_kinds(jobs: JobStore, job_id: str) -> None:
    assert await numbers(jobs, job_id, kinds=["rare"]) == [9]
    assert await numbers(jobs, job_id, kinds=["line", "job.succeeded"]) == [2, 4, 6, 8, 10]
    assert await numbers(jobs, job_id, kinds=["never"]) == []
    assert await numbers(jobs, job_id) == list(range(1, 11))


async def test_events_of_some_time(jobs: JobStore, job_id: str, clock: ManualClock) -> None:
    end_ms = clock.wall_ms()
    assert await numbers(jobs, job_id, from_ms=end_ms - 2_000) == [8, 9, 10]
    assert await numbers(jobs, job_id, before_ms=end_ms - 7_000) == [1, 2]
    assert await numbers(jobs, job_id, from_ms=end_ms - 5_000, before_ms=end_ms - 2_000, kinds=["line"]) == [6]


async def test_a_filter_that_matches_nothing_looks_at_so_many_events_and_says_where_to_go_on(
    near: JobStore, job_id: str
) -> None:
    looked = [0]
    state = None
    while state is None:
        found = await near.events(job_id, after=looked[-1], limit=100, wanted=EventFilter(kinds=("never",)))
        assert found.events == []
        looked.append(found.after)
        state = found.state if found.complete else None
    assert (looked, state) == ([0, 4, 8, 10], JobState.SUCCEEDED)


async def test_a_follower_goes_on_from_stretch_to_stretch(near: JobStore, job_id: str, clock: ManualClock) -> None:
    looking = Looking(near, Changes(1), clock, JobLimits())
    for kind, expected in (("rare", [9]), ("never", [])):
        news = [part async for part in looking.follow(job_id, wanted=EventFilter(kinds=(kind,)))]
        assert [event.seq for part in news for event in part.events] == expected
        assert news[-1].ended is JobState.SUCCEEDED


async def test_a_page_that_is_full_ends_at_its_last_event(near: JobStore, job_id: str) -> None:
    found = await near.events(job_id, limit=1, wanted=EventFilter(kinds=("line",)))
    assert ([event.seq for event in found.events], found.after, found.complete) == ([2], 2, False)
    found = await near.events(job_id, after=found.after, limit=1, wanted=EventFilter(kinds=("rare",)))
    assert (found.events, found.after, found.complete) == ([], 6, False)


async def test_beyond_the_last_event_there_is_nothing_to_look_at(near: JobStore, job_id: str) -> None:
    for after in (10, 99, 2**62):
        found = await near.events(job_id, after=after, limit=1)
        assert (found.events, found.after, found.complete) == ([], after, True)


async def test_a_page_holds_a_bounded_number_of_bytes(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue)
    lease = await start(jobs, queue)
    large = b'"' + b"x" * 3_000_000 + b'"'
    for number in range(4):
        await jobs.publish(lease, f"e{number}", "line", large)
    found = await jobs.events(lease.job_id, limit=500)
    assert ([event.seq for event in found.events], found.after, found.complete) == ([1, 2, 3], 3, False)
    rest = await jobs.events(lease.job_id, after=found.after, limit=500)
    assert ([event.seq for event in rest.events], rest.after, rest.complete) == ([4], 4, True)
