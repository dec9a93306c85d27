"""Chains: a continuation that has a continuation, and so on, each enqueued once when the one before has ended."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.gather import MEMBERS_KEPT_MS, ErrorPolicy, GatherState, NewGather, id_after
from penstock.domain.job import JobState, Lease, Membership
from penstock.domain.job_errors import GatherExists, JobExists, JobStateConflict
from penstock.domain.job_queue import JobQueue
from penstock.domain.limits import DAY_MS
from penstock.domain.operation import JobFilter, OperationKind
from penstock.store.job_port import Accept, Complete, JobStore
from penstock.store.jobs.gathers import GATHERS_KEPT_MS
from penstock.testing import ManualClock
from tests.support.gathers import assert_continued, assert_stored, continuations, members, new_gather, run_members
from tests.support.interleaving import lose_the_answer
from tests.support.job_rows import rows_left
from tests.support.job_steps import counted, draft, enqueue, fail, finish, make_queue, offer, start, states
from tests.support.stores import Home, Opener, on_postgres

PENDING, WAITING, DONE = GatherState.PENDING, GatherState.WAITING, GatherState.DONE
EXPIRED, CANCELLED = GatherState.EXPIRED, GatherState.CANCELLED


async def open_chain(jobs: JobStore, queue: JobQueue, links: int, *, count: int = 1, **fields: Any) -> NewGather:
    """Open a gather with this many links after it."""
    fields.setdefault("chain", [{} for _ in range(links - 1)])
    new = new_gather(queue, **fields)
    assert_stored(await jobs.open_gather(new, members(new.id, queue, count), seal=True))
    return new


def gather_ids(new: NewGather) -> list[str]:
    return [new.id, *(link.gather_id for link in new.chain)]


def link_ids(new: NewGather) -> list[str]:
    return [new.draft.id, *(link.draft.id for link in new.chain)]


async def gather_states(jobs: JobStore, new: NewGather) -> list[GatherState]:
    return [(await jobs.gather(gather_id)).state for gather_id in gather_ids(new)]


async def sweep(jobs: JobStore) -> None:
    while await jobs.sweep():
        pass


async def run_to_its_end(jobs: JobStore, lease: Lease, result: bytes = b"1") -> None:
    """Accept an offer and complete it."""
    await jobs.report([Accept(lease), Complete(lease, result)])


async def test_a_chain_of_five_runs_to_its_end(jobs: JobStore, queue: JobQueue) -> None:
    other = await make_queue(jobs, "other")
    queues = [queue, other, queue, other, queue]
    new = await open_chain(jobs, queue, 5, count=2, chain=[{"queue": one} for one in queues[1:]])
    gathers, links = gather_ids(new), link_ids(new)
    assert await gather_states(jobs, new) == [WAITING, PENDING, PENDING, PENDING, PENDING]
    await run_members(jobs, queue, 2)
    for place, own in enumerate(queues):
        assert await gather_states(jobs, new) == [DONE] * (place + 1) + [WAITING] * (place < 4) + [PENDING] * (
            3 - place
        )
        [one] = await offer(jobs, own)
        follows = Membership(gathers[place + 1], 0) if place < 4 else None
        assert (one.lease.job_id, one.gathered, one.member) == (links[place], gathers[place], follows)
        job = await jobs.job(links[place])
        assert (job.gathered, job.member) == (gathers[place], follows)
        await run_to_its_end(jobs, one.lease, b"%d" % place)
    for place, gather_id in enumerate(gathers):
        gather = await assert_continued(jobs, gather_id)
        total = 1 if place else 2
        assert (gather.total, gather.succeeded, gather.remaining, gather.sealed) == (total, total, 0, True)
        assert gather.continuation_id == links[place]
        if place:
            page = await jobs.gather_results(gather_id, limit=10)
            assert [(one.index, one.job_id, one.result) for one in page.results] == [
                (0, links[place - 1], b"%d" % (place - 1))
            ]
    assert await states(jobs, links) == [JobState.SUCCEEDED] * 5
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 5}


async def test_a_chain_without_members_begins_at_once(jobs: JobStore, queue: JobQueue) -> None:
    new = await open_chain(jobs, queue, 2, count=0)
    assert await gather_states(jobs, new) == [DONE, WAITING]
    await run_members(jobs, queue, 1)
    assert [one.lease.job_id for one in await offer(jobs, queue)] == link_ids(new)[1:]


async def test_a_dead_link_holds_up_a_chain_that_fails(jobs: JobStore, queue: JobQueue) -> None:
    new = await open_chain(jobs, queue, 3)
    await run_members(jobs, queue, 1)
    await run_members(jobs, queue, 1, fails=1)
    assert await gather_states(jobs, new) == [DONE, WAITING, PENDING]
    inner = await jobs.gather(gather_ids(new)[1])
    assert (inner.on_error, inner.failed, inner.remaining) == (ErrorPolicy.FAIL, 1, 0)
    await jobs.retry(link_ids(new)[0])
    await run_members(jobs, queue, 1)
    assert await gather_states(jobs, new) == [DONE, DONE, WAITING]


@pytest.mark.parametrize("how", ["dead", "cancelled", "purged"])
async def test_a_chain_that_collects_goes_on_however_a_link_ends(jobs: JobStore, queue: JobQueue, how: str) -> None:
    new = await open_chain(jobs, queue, 3, on_error=ErrorPolicy.COLLECT)
    await run_members(jobs, queue, 1, fails=1)
    first, second, _ = link_ids(new)
    if how == "dead":
        await run_members(jobs, queue, 1, fails=1)
    elif how == "cancelled":
        await jobs.cancel(first)
    else:
        await jobs.start_operation("purge", OperationKind.PURGE, queue, JobFilter(), None)
        while await jobs.advance_operations() is not None:
            pass
    assert await gather_states(jobs, new) == [DONE, DONE, WAITING]
    [result] = (await jobs.gather_results(gather_ids(new)[1], limit=10)).results
    assert (result.job_id, result.state) == (first, JobState.DEAD if how == "dead" else JobState.CANCELLED)
    assert [one.lease.job_id for one in await offer(jobs, queue)] == [second]


async def test_a_link_that_comes_back_does_not_run_the_rest_again(jobs: JobStore, queue: JobQueue) -> None:
    new = await open_chain(jobs, queue, 2, on_error=ErrorPolicy.COLLECT)
    await run_members(jobs, queue, 1)
    await run_members(jobs, queue, 1, fails=1)
    await jobs.retry(link_ids(new)[0])
    await run_members(jobs, queue, 2)
    for gather_id in gather_ids(new):
        await assert_continued(jobs, gather_id)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 3}


@pytest.mark.parametrize("swept", [True, False])
async def test_a_chain_expires_as_a_whole(jobs: JobStore, queue: JobQueue, clock: ManualClock, *, swept: bool) -> None:
    created_ms = clock.now_ms()
    new = await open_chain(jobs, queue, 3, expires_in_ms=DAY_MS)
    waiting = await open_chain(jobs, queue, 3, expires_in_ms=DAY_MS)
    [lease, _] = [one.lease for one in await offer(jobs, queue)]
    await run_to_its_end(jobs, lease)
    await clock.advance(ms=DAY_MS - 1)
    assert await gather_states(jobs, new) == [DONE, WAITING, PENDING]
    lease = next(one.lease for one in await offer(jobs, queue) if one.lease.job_id == new.draft.id)
    await clock.advance(ms=1)
    if swept:
        await sweep(jobs)
    await run_to_its_end(jobs, lease)
    assert await states(jobs, [new.draft.id]) == [JobState.SUCCEEDED]
    assert await gather_states(jobs, new) == [DONE, EXPIRED, EXPIRED]
    assert await gather_states(jobs, waiting) == [EXPIRED] * 3
    last = await jobs.gather(gather_ids(waiting)[2])
    assert (last.created_at_ms, last.ended_at_ms) == (created_ms, created_ms + DAY_MS)
    assert await continuations(jobs, gather_ids(new)[1]) == []


class TestCancelling:
    async def test_nothing_that_follows_a_cancelled_gather_runs(self, jobs: JobStore, queue: JobQueue) -> None:
        new = await open_chain(jobs, queue, 4)
        for _ in range(2):
            assert (await jobs.cancel_gather(new.id)).state is CANCELLED
        assert await gather_states(jobs, new) == [CANCELLED] * 4
        await run_members(jobs, queue, 1)
        assert await offer(jobs, queue) == []

    async def test_one_that_waits_in_the_middle_ends_the_chain(self, jobs: JobStore, queue: JobQueue) -> None:
        new = await open_chain(jobs, queue, 4)
        await run_members(jobs, queue, 1)
        await jobs.cancel_gather(gather_ids(new)[1])
        assert await gather_states(jobs, new) == [DONE, CANCELLED, CANCELLED, CANCELLED]
        await run_members(jobs, queue, 1)
        assert await offer(jobs, queue) == []
        with pytest.raises(JobStateConflict):
            await jobs.cancel_gather(new.id)

    async def test_one_that_is_pending_ends_the_chain_there(self, jobs: JobStore, queue: JobQueue) -> None:
        new = await open_chain(jobs, queue, 4)
        assert (await jobs.cancel_gather(gather_ids(new)[2])).state is CANCELLED
        assert await gather_states(jobs, new) == [WAITING, PENDING, CANCELLED, CANCELLED]
        for _ in range(3):
            await run_members(jobs, queue, 1)
        assert await offer(jobs, queue) == []
        assert await states(jobs, link_ids(new)[:2]) == [JobState.SUCCEEDED] * 2
        assert await gather_states(jobs, new) == [DONE, DONE, CANCELLED, CANCELLED]

    async def test_one_that_was_removed_meanwhile_leaves_nothing(
        self, jobs: JobStore, queue: JobQueue, clock: ManualClock, opener: Opener, folder: Path
    ) -> None:
        new = await open_chain(jobs, queue, 2, expires_in_ms=30 * DAY_MS)
        await jobs.cancel_gather(gather_ids(new)[1])
        await clock.advance(ms=MEMBERS_KEPT_MS + GATHERS_KEPT_MS)
        await sweep(jobs)
        for _ in range(2):
            await run_members(jobs, queue, 1)
        assert (await jobs.job(new.draft.id)).member is None
        await clock.advance(ms=60 * DAY_MS)
        await sweep(jobs)
        assert await rows_left(opener, folder) == {}


class TestOpening:
    async def test_a_repeated_call_changes_nothing(self, jobs: JobStore, queue: JobQueue) -> None:
        new = await open_chain(jobs, queue, 3)
        own = members(new.id, queue, 1)
        for expected in ([WAITING, PENDING, PENDING], [DONE, WAITING, PENDING], [DONE, DONE, WAITING], [DONE] * 3):
            again = await jobs.open_gather(new, own, seal=True)
            assert (again.created, again.gather.total) == (False, 1)
            assert await gather_states(jobs, new) == expected
            await run_members(jobs, queue, 1)
        assert await counted(jobs, queue) == {JobState.SUCCEEDED: 4}

    async def test_one_that_is_pending_takes_no_members(self, jobs: JobStore, queue: JobQueue) -> None:
        new = await open_chain(jobs, queue, 2)
        inner = gather_ids(new)[1]
        filled = await jobs.fill_gather(inner, members(inner, queue, 2), seal=True)
        assert [type(answer) for answer in filled.members] == [JobStateConflict] * 2
        filled = await jobs.fill_gather(inner, [], seal=True)
        assert (filled.gather.state, filled.gather.sealed, filled.gather.total) == (PENDING, False, 0)
        with pytest.raises(GatherExists):
            await jobs.open_gather(new_gather(queue, id=inner), [], seal=True)
        assert (await jobs.gather_results(inner, limit=10)).results == []

    async def test_ids_of_links_and_gathers_must_be_free(self, jobs: JobStore, queue: JobQueue) -> None:
        await enqueue(jobs, queue, draft(id="known"))
        with pytest.raises(JobExists, match="known"):
            await jobs.open_gather(new_gather(queue, chain=[{}, {"id": "known"}]), [], seal=True)
        new = new_gather(queue, chain=[{}])
        assert_stored(await jobs.open_gather(new_gather(queue, id=id_after(new.id)), [], seal=False))
        with pytest.raises(GatherExists):
            await jobs.open_gather(new, members(new.id, queue, 1), seal=True)
        assert await counted(jobs, queue) == {JobState.QUEUED: 1}

    async def test_an_id_that_another_job_has_taken_stops_no_link(self, jobs: JobStore, queue: JobQueue) -> None:
        new = await open_chain(jobs, queue, 3, chain=[{"id": "wanted"}, {}])
        lease = await start(jobs, queue)
        await enqueue(jobs, await make_queue(jobs, "other"), draft("other", id="wanted"))
        await finish(jobs, lease)
        for _ in range(3):
            await run_members(jobs, queue, 1)
        gathers = [await assert_continued(jobs, gather_id) for gather_id in gather_ids(new)]
        renamed = gathers[1].continuation_id
        assert renamed not in (None, "wanted")
        [result] = (await jobs.gather_results(gathers[2].id, limit=10)).results
        assert (result.job_id, result.result) == (renamed, b"1")

    async def test_the_queue_of_a_later_link_is_not_deleted(self, jobs: JobStore, queue: JobQueue) -> None:
        other = await make_queue(jobs, "other")
        new = await open_chain(jobs, queue, 3, chain=[{}, {"queue": other}])
        with pytest.raises(JobStateConflict, match="gathers"):
            await jobs.delete_queue(other)
        await jobs.cancel_gather(new.id)
        await jobs.delete_queue(other)


async def test_a_link_is_kept_until_the_next_has_ended(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, "short", retention_ms=0, dead_retention_ms=0)
    new = await open_chain(jobs, queue, 2, expires_in_ms=30 * DAY_MS)
    for _ in range(2):
        await run_members(jobs, queue, 1)
    await clock.advance(ms=DAY_MS)
    await sweep(jobs)
    [result] = (await jobs.gather_results(gather_ids(new)[1], limit=10)).results
    assert (result.job_id, result.result) == (new.draft.id, b"1")
    lease = await start(jobs, queue)
    await finish(jobs, lease)
    await clock.advance(ms=MEMBERS_KEPT_MS)
    await sweep(jobs)
    [result] = (await jobs.gather_results(gather_ids(new)[1], limit=10)).results
    assert (result.state, result.queue) == (JobState.SUCCEEDED, None)


async def test_nothing_is_left_of_chains_in_the_end(
    jobs: JobStore, queue: JobQueue, opener: Opener, folder: Path, clock: ManualClock
) -> None:
    await open_chain(jobs, queue, 5)
    for _ in range(6):
        await run_members(jobs, queue, 1)
    cancelled = await open_chain(jobs, queue, 5)
    await jobs.cancel_gather(cancelled.id)
    await run_members(jobs, queue, 1)
    await clock.advance(ms=60 * DAY_MS)
    for _ in range(2):
        await sweep(jobs)
    assert await rows_left(opener, folder) == {}


@pytest.mark.parametrize("lost", [StoreUnavailable, ConnectionResetError])
async def test_a_report_whose_answer_was_lost_enqueues_one_link(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints, lost: type[Exception]
) -> None:
    new = await open_chain(jobs, queue, 3)
    for _ in range(4):
        lease = await start(jobs, queue)
        lose_the_answer(failpoints, "jobs.report.committed", lost)
        for _ in range(2):
            with contextlib.suppress(StoreUnavailable, ConnectionResetError):
                await jobs.report([Complete(lease)])
    for gather_id in gather_ids(new):
        await assert_continued(jobs, gather_id)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 4}


async def test_a_link_that_is_lost_is_waited_for(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    new = await open_chain(jobs, queue, 2)
    await run_members(jobs, queue, 1)
    await start(jobs, queue)
    await clock.advance(ms=queue.settings.lease_ms)
    await jobs.advance()
    assert await gather_states(jobs, new) == [DONE, WAITING]
    await clock.advance(ms=queue.settings.retry.backoff_ms)
    lease = await start(jobs, queue)
    await fail(jobs, lease)
    await clock.advance(ms=2 * queue.settings.retry.backoff_ms)
    await finish(jobs, await start(jobs, queue))
    assert await gather_states(jobs, new) == [DONE, DONE]


@on_postgres
async def test_chains_on_two_nodes_run_each_link_once(home: Home, jobs: JobStore, queue: JobQueue) -> None:
    nodes = [jobs, (await home.open()).jobs]
    chains = [await open_chain(nodes[number % 2], queue, 5, count=4) for number in range(10)]

    async def work(node: JobStore, number: int) -> None:
        while (await node.counts(queue)).by_state[JobState.SUCCEEDED] < 90:
            for one in await offer(node, queue, 3, worker=f"w{number}"):
                await run_to_its_end(node, one.lease)

    async with asyncio.timeout(50):
        await asyncio.gather(*(work(node, number) for number, node in enumerate(nodes * 2)))
    for new in chains:
        for gather_id in gather_ids(new):
            await assert_continued(jobs, gather_id)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 90}


@on_postgres
async def test_cancelling_and_continuing_at_once_leave_no_half_chain(
    home: Home, jobs: JobStore, queue: JobQueue
) -> None:
    other = (await home.open()).jobs
    for _ in range(20):
        new = await open_chain(jobs, queue, 3)
        lease = await start(jobs, queue)
        await asyncio.gather(jobs.report([Complete(lease)]), other.cancel_gather(new.id), return_exceptions=True)
        found = await gather_states(jobs, new)
        assert found in ([CANCELLED] * 3, [DONE, WAITING, PENDING])
        assert len(await continuations(jobs, new.id)) == (found[0] is DONE)
        if found[0] is DONE:
            await jobs.cancel(new.draft.id)
