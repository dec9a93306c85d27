"""Gathers over time: what is kept for them, for how long, and that nothing is left in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.domain.gather import MEMBERS_KEPT_MS, ErrorPolicy, GatherState
from penstock.domain.job import JobState
from penstock.domain.job_errors import GatherDoesNotExist, JobDoesNotExist
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue
from penstock.domain.limits import DAY_MS, HOUR_MS
from penstock.domain.operation import JobFilter, OperationKind
from penstock.store.job_port import Accept, Complete, JobStore
from penstock.store.jobs.gathers import GATHERS_KEPT_MS
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.gathers import assert_stored, members, open_gather, run_members
from tests.support.job_rows import rows_left
from tests.support.job_steps import fail, finish, make_queue, offer, start, states
from tests.support.stores import Opener

SWEEPS_MAX = 200


async def sweep(jobs: JobStore) -> None:
    for _ in range(SWEEPS_MAX):
        if not await jobs.sweep():
            return
    raise AssertionError(f"still sweeping after {SWEEPS_MAX} passes")


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    """A queue that keeps nothing by itself."""
    return await make_queue(jobs, "short", retention_ms=0, dead_retention_ms=0)


@pytest.fixture
async def reports(jobs: JobStore) -> JobQueue:
    return await make_queue(jobs, "reports")


async def assert_gone(jobs: JobStore, job_ids: list[str]) -> None:
    for job_id in job_ids:
        with pytest.raises(JobDoesNotExist):
            await jobs.job(job_id)


async def test_members_are_kept_until_the_continuation_has_ended(
    jobs: JobStore, queue: JobQueue, reports: JobQueue, clock: ManualClock
) -> None:
    gather_id, _ = await open_gather(jobs, reports, 0, seal=False, on_error=ErrorPolicy.COLLECT)
    ids = await add_members(jobs, gather_id, queue, 2)
    await run_members(jobs, queue, 1, fails=1)
    await clock.advance(ms=HOUR_MS)
    await sweep(jobs)
    await run_members(jobs, queue, 1)
    assert (await jobs.gather(gather_id)).state is GatherState.DONE
    await clock.advance(ms=DAY_MS)
    await sweep(jobs)
    assert await states(jobs, ids) == [JobState.DEAD, JobState.SUCCEEDED]
    await finish(jobs, await start(jobs, reports))
    await clock.advance(ms=MEMBERS_KEPT_MS - 1)
    await sweep(jobs)
    page = await jobs.gather_results(gather_id, limit=10)
    assert [one.result for one in page.results] == [None, b"1"]
    await clock.advance(ms=1)
    await sweep(jobs)
    await assert_gone(jobs, ids)
    # What became of them is known as long as the gather is.
    page = await jobs.gather_results(gather_id, limit=10)
    assert [(one.job_id, one.state, one.queue) for one in page.results] == [
        (ids[0], JobState.DEAD, None),
        (ids[1], JobState.SUCCEEDED, None),
    ]
    gather = await jobs.gather(gather_id)
    assert (gather.total, gather.succeeded, gather.failed) == (2, 1, 1)


async def add_members(jobs: JobStore, gather_id: str, queue: JobQueue, count: int) -> list[str]:
    """Fill a gather, whose continuation is for another queue, and seal it."""
    own = members(gather_id, queue, count)
    assert_stored(await jobs.fill_gather(gather_id, own, seal=True))
    return [one.draft.id for one in own]


async def test_a_continuation_that_is_retried_needs_its_members_again(
    jobs: JobStore, queue: JobQueue, reports: JobQueue, clock: ManualClock
) -> None:
    gather_id, _ = await open_gather(jobs, reports, 0, seal=False)
    ids = await add_members(jobs, gather_id, queue, 1)
    await run_members(jobs, queue, 1)
    lease = await start(jobs, reports)
    await fail(jobs, lease, permanent=True)
    await clock.advance(ms=MEMBERS_KEPT_MS - 1)
    await jobs.retry(lease.job_id)
    await clock.advance(ms=DAY_MS)
    await sweep(jobs)
    assert await states(jobs, ids) == [JobState.SUCCEEDED]
    await finish(jobs, await start(jobs, reports))
    await clock.advance(ms=MEMBERS_KEPT_MS)
    await sweep(jobs)
    await assert_gone(jobs, ids)


async def test_a_continuation_that_is_purged_has_ended(
    jobs: JobStore, queue: JobQueue, reports: JobQueue, clock: ManualClock
) -> None:
    gather_id, _ = await open_gather(jobs, reports, 0, seal=False)
    ids = await add_members(jobs, gather_id, queue, 1)
    await run_members(jobs, queue, 1)
    await jobs.start_operation("purge", OperationKind.PURGE, reports, JobFilter(), None)
    while await jobs.advance_operations() is not None:
        pass
    await clock.advance(ms=MEMBERS_KEPT_MS)
    await sweep(jobs)
    await assert_gone(jobs, ids)


@pytest.mark.parametrize("how", ["cancelled", "expired"])
async def test_members_of_one_that_does_not_continue_are_kept_for_a_while(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, how: str
) -> None:
    gather_id, ids = await open_gather(jobs, queue, 2, expires_in_ms=HOUR_MS)
    await run_members(jobs, queue, 1)
    await clock.advance(ms=HOUR_MS - 1)
    await sweep(jobs)
    if how == "cancelled":
        await jobs.cancel_gather(gather_id)
    else:
        await clock.advance(ms=1)
        await sweep(jobs)
    await clock.advance(ms=MEMBERS_KEPT_MS - 1)
    await sweep(jobs)
    assert await states(jobs, ids) == [JobState.SUCCEEDED, JobState.QUEUED]
    await clock.advance(ms=1)
    await sweep(jobs)
    await assert_gone(jobs, ids[:1])


async def test_nothing_is_left_of_gathers_in_the_end(
    jobs: JobStore, queue: JobQueue, opener: Opener, folder: Path, clock: ManualClock
) -> None:
    assert isinstance(jobs, ScriptedJobs)
    few = jobs.limited(JobLimits(sweep_rows_max=7))
    gathers = [(await open_gather(jobs, queue, count))[0] for count in (0, 1, 20)]
    while offers := await offer(jobs, queue, 100):
        await jobs.report([Accept(one.lease) for one in offers])
        await jobs.report([Complete(one.lease) for one in offers])
    cancelled, _ = await open_gather(jobs, queue, 0, seal=False)
    await jobs.cancel_gather(cancelled)
    await clock.advance(ms=MEMBERS_KEPT_MS)
    await sweep(few)
    assert await rows_left(opener, folder) == {"job_gather": 4, "job_gather_member": 21}
    await clock.advance(ms=GATHERS_KEPT_MS - 1)
    await sweep(few)
    assert (await jobs.gather(gathers[2])).total == 20
    await clock.advance(ms=1)
    await sweep(few)
    assert await rows_left(opener, folder) == {}
    for gather_id in (*gathers, cancelled):
        with pytest.raises(GatherDoesNotExist):
            await jobs.gather(gather_id)


async def test_a_member_that_outlives_its_gather_ends_like_any_job(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    gather_id, _ = await open_gather(jobs, queue, 1)
    lease = await start(jobs, queue)
    await jobs.cancel_gather(gather_id)
    await clock.advance(ms=MEMBERS_KEPT_MS + GATHERS_KEPT_MS)
    await sweep(jobs)
    with pytest.raises(GatherDoesNotExist):
        await jobs.gather(gather_id)
    await jobs.advance()
    await clock.advance(ms=HOUR_MS)
    again = await start(jobs, queue)
    assert again.job_id == lease.job_id
    await finish(jobs, again)
