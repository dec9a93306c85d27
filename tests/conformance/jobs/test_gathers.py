"""Gathers: the continuation is enqueued once, when the last member ends as it should."""

from __future__ import annotations

import pytest

from penstock.domain.gather import ErrorPolicy, GatherState, id_at
from penstock.domain.job import Failure, JobState, Lane, Membership, OnDuplicate
from penstock.domain.job_errors import (
    GatherDoesNotExist,
    GatherExists,
    JobExists,
    JobInvalid,
    JobRefused,
    JobStateConflict,
)
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue, Rate
from penstock.domain.limits import DAY_MS
from penstock.domain.operation import JobFilter, OperationKind
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Accept, Complete, Enqueued, Fail, JobStore
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.gathers import (
    assert_continued,
    assert_stored,
    assert_waiting,
    continuations,
    members,
    new_gather,
    open_gather,
    run_members,
)
from tests.support.job_steps import (
    advance,
    counted,
    draft,
    enqueue,
    fail,
    finish,
    group,
    make_queue,
    offer,
    start,
    state_of,
)

COLLECT = ErrorPolicy.COLLECT


async def test_the_continuation_is_enqueued_with_the_last_success(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, _ = await open_gather(jobs, queue, 3, then={"payload": b'{"sum":1}', "priority": 7})
    await run_members(jobs, queue, 2)
    await assert_waiting(jobs, gather_id, succeeded=2)
    await run_members(jobs, queue, 1)
    gather = await assert_continued(jobs, gather_id)
    assert (gather.total, gather.succeeded, gather.failed, gather.remaining) == (3, 3, 0, 0)
    [then] = await offer(jobs, queue)
    assert (then.task, then.payload, then.priority, then.gathered) == ("then", b'{"sum":1}', 7, gather_id)
    assert await counted(jobs, queue) == {JobState.SUCCEEDED: 3, JobState.OFFERED: 1}


async def test_one_member_makes_a_chain(jobs: JobStore, queue: JobQueue) -> None:
    other = await make_queue(jobs, "reports")
    new = new_gather(other)
    assert_stored(await jobs.open_gather(new, members(new.id, queue, 1), seal=True))
    await run_members(jobs, queue, 1)
    assert [one.lease.job_id for one in await offer(jobs, other)] == [new.draft.id]


async def test_a_gather_without_members_continues_at_once(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, _ = await open_gather(jobs, queue, 0)
    await assert_continued(jobs, gather_id)


async def test_offers_and_jobs_say_what_they_are_in_a_gather(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, [first, second] = await open_gather(jobs, queue, 2)
    offers = await offer(jobs, queue)
    assert [one.member for one in offers] == [Membership(gather_id, 0), Membership(gather_id, 1)]
    assert (await jobs.job(second)).member == Membership(gather_id, 1)
    assert (await jobs.job(first)).gathered is None


async def test_a_dead_member_holds_up_a_gather_that_fails(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, _ = await open_gather(jobs, queue, 3)
    await run_members(jobs, queue, 3, fails=1)
    await assert_waiting(jobs, gather_id, succeeded=2, failed=1)


async def test_a_dead_member_that_is_retried_and_succeeds_lets_it_go_on(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, ids = await open_gather(jobs, queue, 3)
    await run_members(jobs, queue, 3, fails=1)
    [dead] = [job_id for job_id in ids if await state_of(jobs, job_id) is JobState.DEAD]
    await jobs.retry(dead)
    await assert_waiting(jobs, gather_id, succeeded=2)
    await run_members(jobs, queue, 1)
    await assert_continued(jobs, gather_id)


async def test_a_gather_that_collects_continues_however_its_members_end(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, ids = await open_gather(jobs, queue, 4, on_error=COLLECT)
    await run_members(jobs, queue, 2, fails=1)
    await jobs.cancel(ids[2])
    await assert_waiting(jobs, gather_id, succeeded=1, failed=2)
    await run_members(jobs, queue, 1)
    gather = await assert_continued(jobs, gather_id)
    assert (gather.succeeded, gather.failed) == (2, 2)


async def test_a_member_that_comes_back_after_the_continuation_does_not_fire_it_again(
    jobs: JobStore, queue: JobQueue
) -> None:
    gather_id, ids = await open_gather(jobs, queue, 2, on_error=COLLECT)
    await jobs.cancel(ids[0])
    await run_members(jobs, queue, 1)
    await assert_continued(jobs, gather_id)
    await jobs.retry(ids[0])
    assert (await jobs.gather(gather_id)).remaining == 1
    leases = [one.lease for one in await offer(jobs, queue)]
    await jobs.report([Accept(lease) for lease in leases])
    await jobs.report([Complete(lease) for lease in leases])
    gather = await assert_continued(jobs, gather_id)
    assert (gather.succeeded, gather.failed) == (2, 0)


async def test_every_way_in_which_a_job_ends_is_counted(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(
        jobs, "frail", retry=RetryPolicy(attempts_max=1, losses_max=1), lease_ms=1_000, timeout_ms=5_000
    )
    gather_id, ids = await open_gather(jobs, queue, 6, on_error=COLLECT)
    for count, what in enumerate(("lost", "timed out", "failed", "stopped", "cancelled")):
        await assert_waiting(jobs, gather_id, failed=count)
        if what == "cancelled":
            await jobs.cancel(ids[4])
            continue
        lease = await start(jobs, queue)
        if what == "lost":
            await clock.advance(ms=1_000)
            await advance(jobs)
        elif what == "timed out":
            for _ in range(10):
                await clock.advance(ms=500)
                await jobs.report([Accept(lease)])
            await advance(jobs)
        elif what == "failed":
            await fail(jobs, lease)
        else:
            await jobs.cancel(lease.job_id)
            await fail(jobs, lease)
    await assert_waiting(jobs, gather_id, failed=5)
    await finish(jobs, await start(jobs, queue))
    await assert_continued(jobs, gather_id)


async def test_a_lapse_that_an_offer_meets_is_counted(jobs: JobStore, clock: ManualClock) -> None:
    queue = await make_queue(jobs, "strict", strict=True, lease_ms=1_000)
    new = new_gather(queue, on_error=COLLECT)
    own = members(new.id, queue, 1, idempotency_key=b"k" * 32)
    assert_stored(await jobs.open_gather(new, own, seal=True))
    await start(jobs, queue)
    await clock.advance(ms=1_000)
    await offer(jobs, queue)
    await assert_continued(jobs, new.id)


async def test_purged_members_count_as_cancelled(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, ids = await open_gather(jobs, queue, 3, on_error=COLLECT)
    lease = await start(jobs, queue)
    await jobs.start_operation("purge", OperationKind.PURGE, queue, JobFilter(), None)
    await advance_operations(jobs)
    await assert_waiting(jobs, gather_id, failed=2)
    await finish(jobs, lease)
    await assert_continued(jobs, gather_id)
    page = await jobs.gather_results(gather_id, limit=10)
    assert [(one.index, one.job_id, one.state, one.result) for one in page.results] == [
        (0, ids[0], JobState.SUCCEEDED, b"null"),
        (1, ids[1], JobState.CANCELLED, None),
        (2, ids[2], JobState.CANCELLED, None),
    ]


async def test_requeued_members_are_counted_back(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, _ = await open_gather(jobs, queue, 5)
    await run_members(jobs, queue, 5, fails=4)
    await assert_waiting(jobs, gather_id, succeeded=1, failed=4)
    await jobs.start_operation("requeue", OperationKind.REQUEUE, queue, JobFilter(), None)
    await advance_operations(jobs)
    await assert_waiting(jobs, gather_id, succeeded=1)
    await run_members(jobs, queue, 4)
    await assert_continued(jobs, gather_id)


async def advance_operations(jobs: JobStore) -> None:
    while await jobs.advance_operations() is not None:
        pass


async def test_members_of_several_gathers_end_in_one_call(jobs: JobStore, queue: JobQueue) -> None:
    gathers = [await open_gather(jobs, queue, 2) for _ in range(3)]
    await run_members(jobs, queue, 6)
    for gather_id, _ in gathers:
        await assert_continued(jobs, gather_id)


async def test_the_continuation_is_bounded_neither_by_depth_nor_by_rates(jobs: JobStore) -> None:
    rate = Rate(per_second=0.001, burst=1)
    queue = await make_queue(jobs, "full", depth_max=1, rate=rate, rate_per_tenant=rate)
    gather_id, _ = await open_gather(jobs, queue, 1)
    lease = await start(jobs, queue)
    await finish(jobs, lease)
    await assert_continued(jobs, gather_id)


async def test_a_continuation_may_have_a_lane_a_delay_and_a_strict_queue(jobs: JobStore, clock: ManualClock) -> None:
    work = await make_queue(jobs, "work")
    queue = await make_queue(jobs, "strict", strict=True)
    ordered = new_gather(queue, then={"lane": group("g"), "delay_ms": 5_000})
    limited = new_gather(queue, then={"lane": Lane(key="k", width=1)})
    for new in (ordered, limited):
        own = members(new.id, work, 2, lane=group("g"))
        assert_stored(await jobs.open_gather(new, own, seal=True))
    for _ in range(4):
        await finish(jobs, await start(jobs, work))
    assert [one.lease.job_id for one in await offer(jobs, queue)] == [limited.draft.id]
    await clock.advance(ms=5_000)
    assert [one.lease.job_id for one in await offer(jobs, queue)] == [ordered.draft.id]


async def test_an_id_that_another_job_has_taken_does_not_stop_the_continuation(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, _ = await open_gather(jobs, queue, 1, then={"id": "wanted"})
    lease = await start(jobs, queue)
    await enqueue(jobs, queue, draft("other", id="wanted"))
    await finish(jobs, lease)
    gather = await assert_continued(jobs, gather_id)
    assert gather.continuation_id not in (None, "wanted")
    assert (await jobs.job("wanted")).task == "other"


async def test_an_id_that_was_purged_does_not_stop_the_continuation(jobs: JobStore, queue: JobQueue) -> None:
    [purged] = await enqueue(jobs, queue)
    await jobs.start_operation("purge", OperationKind.PURGE, queue, JobFilter(), None)
    while await jobs.advance_operations() is not None:
        pass
    gather_id, _ = await open_gather(jobs, queue, 1, then={"id": purged})
    await run_members(jobs, queue, 1)
    await assert_continued(jobs, gather_id)


async def test_a_member_that_another_member_replaces_has_failed(jobs: JobStore, queue: JobQueue) -> None:
    gather_id, _ = await open_gather(jobs, queue, 0, seal=False, on_error=ErrorPolicy.COLLECT)
    own = members(gather_id, queue, 2, unique_key="u", on_duplicate=OnDuplicate.REPLACE)
    first, second = (one.draft.id for one in own)
    filled = await jobs.fill_gather(gather_id, own, seal=True)
    assert filled.members == [
        Enqueued(first, JobState.CANCELLED),
        Enqueued(second, JobState.QUEUED, replaced=first),
    ]
    await assert_waiting(jobs, gather_id, failed=1)
    await run_members(jobs, queue, 1)
    gather = await assert_continued(jobs, gather_id)
    assert (gather.total, gather.succeeded, gather.failed) == (2, 1, 1)


class TestFilling:
    async def test_an_id_given_twice_adds_nothing_to_a_sealed_gather(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, _ = await open_gather(jobs, queue, 2)
        filled = await jobs.fill_gather(gather_id, members(gather_id, queue, 2, first=2, id="twice"), seal=False)
        assert all(isinstance(answer, JobStateConflict) for answer in filled.members)
        await run_members(jobs, queue, 2)
        await assert_continued(jobs, gather_id)

    async def test_members_are_added_until_it_is_sealed(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, _ = await open_gather(jobs, queue, 2, seal=False)
        await run_members(jobs, queue, 2)
        gather = await jobs.gather(gather_id)
        assert (gather.state, gather.succeeded, gather.sealed) == (GatherState.OPEN, 2, False)
        filled = await jobs.fill_gather(gather_id, members(gather_id, queue, 2, first=2), seal=True)
        assert_stored(filled)
        assert (filled.gather.state, filled.gather.total, filled.gather.sealed) == (GatherState.WAITING, 4, True)
        await run_members(jobs, queue, 2)
        await assert_continued(jobs, gather_id)

    async def test_members_may_all_have_ended_before_the_seal(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, _ = await open_gather(jobs, queue, 2, seal=False)
        await run_members(jobs, queue, 2)
        assert await continuations(jobs, gather_id) == []
        for _ in range(2):
            filled = await jobs.fill_gather(gather_id, [], seal=True)
            assert filled.gather.state is GatherState.DONE
            await assert_continued(jobs, gather_id)

    async def test_a_repeated_call_changes_nothing(self, jobs: JobStore, queue: JobQueue) -> None:
        new = new_gather(queue)
        first, rest = members(new.id, queue, 2), members(new.id, queue, 2, first=2)
        assert (await jobs.open_gather(new, first, seal=False)).created
        await jobs.fill_gather(new.id, rest, seal=True)
        lease = await start(jobs, queue)
        await finish(jobs, lease)
        opened = await jobs.open_gather(new, first, seal=False)
        assert not opened.created
        assert opened.members == [
            Enqueued(first[0].draft.id, JobState.SUCCEEDED, new=False),
            Enqueued(first[1].draft.id, JobState.QUEUED, new=False),
        ]
        filled = await jobs.fill_gather(new.id, rest, seal=True)
        assert (filled.gather.total, filled.gather.succeeded) == (4, 1)
        await run_members(jobs, queue, 3)
        assert (await jobs.open_gather(new, first, seal=False)).gather.state is GatherState.DONE
        await assert_continued(jobs, new.id)

    async def test_another_job_at_a_place_is_refused(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, ids = await open_gather(jobs, queue, 2, seal=False)
        [other] = members(gather_id, queue, 1, id="another")
        [changed] = members(gather_id, queue, 1, first=1, payload=b"2")
        [moved] = members(gather_id, queue, 1, first=2, id=ids[0])
        filled = await jobs.fill_gather(gather_id, [other, changed, moved], seal=True)
        assert [type(answer) for answer in filled.members] == [JobExists] * 3
        assert (filled.gather.total, filled.gather.sealed) == (2, False)

    async def test_a_job_that_is_there_already_cannot_become_a_member(self, jobs: JobStore, queue: JobQueue) -> None:
        [known] = await enqueue(jobs, queue, draft(id="known", unique_key="u"))
        gather_id, _ = await open_gather(jobs, queue, 0, seal=False)
        own = [
            *members(gather_id, queue, 1, id=known),
            *members(gather_id, queue, 1, first=1, unique_key="u"),
            *members(gather_id, queue, 1, first=2),
        ]
        filled = await jobs.fill_gather(gather_id, own, seal=True)
        assert [type(answer) for answer in filled.members] == [JobExists, JobExists, Enqueued]
        assert (filled.gather.total, filled.gather.sealed) == (1, False)
        assert (await jobs.job(known)).member is None

    async def test_one_that_is_refused_keeps_it_open(self, jobs: JobStore) -> None:
        queue = await make_queue(jobs, "full", depth_max=2)
        new = new_gather(queue)
        own = members(new.id, queue, 3)
        filled = await jobs.open_gather(new, own, seal=True)
        assert isinstance(filled.members[2], JobRefused)
        assert (filled.gather.state, filled.gather.total) == (GatherState.OPEN, 2)
        await run_members(jobs, queue, 2)
        filled = await jobs.open_gather(new, own, seal=True)
        assert (filled.gather.state, filled.gather.total) == (GatherState.WAITING, 3)
        await run_members(jobs, queue, 1)
        await assert_continued(jobs, new.id)

    async def test_a_missing_place_keeps_it_open(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, _ = await open_gather(jobs, queue, 1, seal=False)
        late = members(gather_id, queue, 1, first=2)
        assert not (await jobs.fill_gather(gather_id, late, seal=True)).gather.sealed
        await jobs.fill_gather(gather_id, members(gather_id, queue, 1, first=1), seal=False)
        assert (await jobs.fill_gather(gather_id, late, seal=True)).gather.sealed

    async def test_a_sealed_one_takes_no_more(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, _ = await open_gather(jobs, queue, 1)
        filled = await jobs.fill_gather(gather_id, members(gather_id, queue, 2), seal=True)
        assert [type(answer) for answer in filled.members] == [Enqueued, JobStateConflict]
        assert filled.gather.total == 1
        assert await counted(jobs, queue) == {JobState.QUEUED: 1}

    async def test_it_has_a_bound(self, jobs: JobStore, queue: JobQueue) -> None:
        assert isinstance(jobs, ScriptedJobs)
        few = jobs.limited(JobLimits(gather_members_max=2))
        gather_id, _ = await open_gather(few, queue, 1, seal=False)
        filled = await few.fill_gather(gather_id, members(gather_id, queue, 2, first=1), seal=True)
        assert [type(answer) for answer in filled.members] == [Enqueued, JobInvalid]

    async def test_members_may_be_of_several_queues(self, jobs: JobStore, queue: JobQueue) -> None:
        other = await make_queue(jobs, "other", strict=True)
        new = new_gather(other)
        own = [*members(new.id, other, 1, idempotency_key=b"k" * 32), *members(new.id, queue, 2, first=1)]
        assert_stored(await jobs.open_gather(new, own, seal=True))
        await run_members(jobs, queue, 2)
        await assert_waiting(jobs, new.id, succeeded=2)
        await run_members(jobs, other, 1)
        await assert_continued(jobs, new.id)

    async def test_the_same_id_with_another_continuation_is_refused(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, _ = await open_gather(jobs, queue, 1, then={"tenant": "acme"})
        for other in (
            new_gather(queue, id=gather_id, then={"tenant": "bolt"}),
            new_gather(queue, id=gather_id, then={"tenant": "acme"}, fingerprint=b"other"),
        ):
            with pytest.raises(GatherExists):
                await jobs.open_gather(other, members(gather_id, queue, 2), seal=True)
        assert (await jobs.gather(gather_id)).total == 1

    async def test_the_continuations_id_must_be_free(self, jobs: JobStore, queue: JobQueue) -> None:
        await enqueue(jobs, queue, draft(id="known"))
        new = new_gather(queue, then={"id": "known"})
        with pytest.raises(JobExists):
            await jobs.open_gather(new, members(new.id, queue, 1), seal=True)
        with pytest.raises(GatherDoesNotExist):
            await jobs.gather(new.id)
        assert await counted(jobs, queue) == {JobState.QUEUED: 1}

    async def test_one_that_is_not_there_cannot_be_filled(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id = new_gather(queue).id
        with pytest.raises(GatherDoesNotExist):
            await jobs.fill_gather(gather_id, members(gather_id, queue, 1), seal=True)
        assert await counted(jobs, queue) == {}


class TestEnding:
    async def test_a_cancelled_one_does_not_continue_and_its_members_go_on(
        self, jobs: JobStore, queue: JobQueue
    ) -> None:
        gather_id, _ = await open_gather(jobs, queue, 2)
        for _ in range(2):
            assert (await jobs.cancel_gather(gather_id)).state is GatherState.CANCELLED
        await run_members(jobs, queue, 2)
        gather = await jobs.gather(gather_id)
        assert (gather.state, gather.succeeded) == (GatherState.CANCELLED, 2)
        assert await continuations(jobs, gather_id) == []
        filled = await jobs.fill_gather(gather_id, members(gather_id, queue, 1, first=2), seal=True)
        assert isinstance(filled.members[0], JobStateConflict)

    async def test_what_is_done_cannot_be_cancelled(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, _ = await open_gather(jobs, queue, 1)
        await run_members(jobs, queue, 1)
        with pytest.raises(JobStateConflict):
            await jobs.cancel_gather(gather_id)
        with pytest.raises(GatherDoesNotExist):
            await jobs.cancel_gather(id_at(gather_id, 7))

    @pytest.mark.parametrize("swept", [True, False])
    async def test_it_expires(self, jobs: JobStore, queue: JobQueue, clock: ManualClock, *, swept: bool) -> None:
        created_ms = clock.now_ms()
        gather_id, _ = await open_gather(jobs, queue, 2, expires_in_ms=DAY_MS)
        unsealed, _ = await open_gather(jobs, queue, 0, seal=False, expires_in_ms=DAY_MS)
        await run_members(jobs, queue, 1)
        await clock.advance(ms=DAY_MS - 1)
        assert (await jobs.gather(unsealed)).state is GatherState.OPEN
        await clock.advance(ms=1)
        if swept:
            await jobs.sweep()
        await run_members(jobs, queue, 1)
        for one in (gather_id, unsealed):
            gather = await jobs.gather(one)
            assert (gather.state, gather.ended_at_ms) == (GatherState.EXPIRED, created_ms + DAY_MS)
        assert await continuations(jobs, gather_id) == []
        with pytest.raises(JobStateConflict):
            await jobs.cancel_gather(gather_id)
        filled = await jobs.fill_gather(unsealed, members(unsealed, queue, 1), seal=True)
        assert isinstance(filled.members[0], JobStateConflict)

    async def test_the_queue_of_a_continuation_is_not_deleted(self, jobs: JobStore, queue: JobQueue) -> None:
        other = await make_queue(jobs, "other")
        gather_id, _ = await open_gather(jobs, other, 0, seal=False)
        with pytest.raises(JobStateConflict, match="gathers"):
            await jobs.delete_queue(other)
        await jobs.cancel_gather(gather_id)
        await jobs.delete_queue(other)
        assert (await jobs.gather(gather_id)).queue == "other"


class TestResults:
    async def test_results_come_in_the_order_of_the_members(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, ids = await open_gather(jobs, queue, 4, on_error=COLLECT)
        leases = {one.lease.job_id: one.lease for one in await offer(jobs, queue)}
        await jobs.report([Accept(lease) for lease in leases.values()])
        await jobs.report([Complete(leases[ids[2]], b'"c"'), Fail(leases[ids[0]], Failure(kind="x", permanent=True))])
        page = await jobs.gather_results(gather_id, limit=3)
        assert page.after == 2
        assert [(one.index, one.job_id, one.state, one.result, one.queue) for one in page.results] == [
            (0, ids[0], JobState.DEAD, None, "mail"),
            (1, ids[1], JobState.RUNNING, None, "mail"),
            (2, ids[2], JobState.SUCCEEDED, b'"c"', "mail"),
        ]
        assert page.results[0].failure is not None
        page = await jobs.gather_results(gather_id, after=2, limit=3)
        assert ([one.index for one in page.results], page.after) == ([3], None)
        assert (await jobs.gather_results(gather_id, after=3, limit=3)).results == []
        with pytest.raises(GatherDoesNotExist):
            await jobs.gather_results(id_at(gather_id, 7), limit=3)

    async def test_a_page_of_large_results_is_cut_off(self, jobs: JobStore, queue: JobQueue) -> None:
        gather_id, _ = await open_gather(jobs, queue, 12, on_error=COLLECT)
        leases = [one.lease for one in await offer(jobs, queue, 12)]
        await jobs.report([Accept(lease) for lease in leases])
        for lease in leases:
            await finish(jobs, lease, b'"' + b"x" * 1_000_000 + b'"')
        seen: list[int] = []
        after: int | None = -1
        while after is not None:
            page = await jobs.gather_results(gather_id, after=after, limit=500)
            assert 0 < len(page.results) < 12
            seen += [one.index for one in page.results]
            after = page.after
        assert seen == list(range(12))
