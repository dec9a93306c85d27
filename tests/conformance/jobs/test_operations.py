from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Failure, JobState, Lane
from penstock.domain.job_errors import JobDoesNotExist, JobQueueDoesNotExist, OperationDoesNotExist
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.domain.limits import REPEAT_WINDOW_MS
from penstock.domain.operation import JobFilter, Operation, OperationKind, OperationState
from penstock.store.job_port import Fail, JobStore
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.interleaving import lose_the_answer
from tests.support.job_lives import add, add_many, complete, die, ids_of
from tests.support.job_rows import rows_left
from tests.support.job_steps import draft, report, start
from tests.support.stores import Home, Opener, Reopen, on_postgres

STEPS_MAX = 200

REQUEUE, PURGE = OperationKind.REQUEUE, OperationKind.PURGE


async def run(jobs: JobStore, clock: ManualClock) -> int:
    """Do every step when it is due until no operation runs, and say how many ms that took."""
    began_ms = clock.now_ms()
    for _ in range(STEPS_MAX):
        due_in_ms = await jobs.advance_operations()
        if due_in_ms is None:
            return clock.now_ms() - began_ms
        await clock.advance(ms=due_in_ms)
    raise AssertionError(f"still running after {STEPS_MAX} steps")


async def make_dead(jobs: JobStore, queue: JobQueue, number: int, kind: str = "Broken") -> list[str]:
    await add_many(jobs, queue, number)
    return [await die(jobs, queue, kind) for _ in range(number)]


async def in_state(jobs: JobStore, state: JobState) -> list[str]:
    """The ids of all jobs in a state, the oldest first."""
    return ids_of(await jobs.jobs(JobFilter(states=(state,)), limit=1_000))[::-1]


# -- any operation --------------------------------------------------------------------------------


async def test_an_operation_is_kept(jobs: JobStore, queue: JobQueue, clock: ManualClock, reopen: Reopen) -> None:
    wanted = JobFilter(task="mail", tag="red", states=(JobState.DEAD,))
    started = await jobs.start_operation("op-1", REQUEUE, queue, wanted, 50)
    assert started == Operation(
        id="op-1",
        kind=REQUEUE,
        queue=queue.name,
        wanted=JobFilter(queue=queue.name, task="mail", tag="red", states=(JobState.DEAD,)),
        rate=50,
        state=OperationState.RUNNING,
        done=0,
        started_at_ms=clock.now_ms(),
    )
    jobs = (await reopen()).jobs
    assert await jobs.operation("op-1") == started


async def test_an_operation_started_again_is_the_same(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await make_dead(jobs, queue, 1)
    started = await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), None)
    await clock.advance(seconds=1)
    assert await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), None) == started
    await run(jobs, clock)
    ended = await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), None)
    assert (ended.state, ended.done) == (OperationState.DONE, 1)
    assert await jobs.advance_operations() is None


async def test_with_nothing_to_do_it_is_done(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), 10)
    await clock.advance(seconds=1)
    assert await jobs.advance_operations() is None
    ended = await jobs.operation("op-1")
    assert (ended.state, ended.done, ended.ended_at_ms) == (OperationState.DONE, 0, clock.now_ms())


async def test_operations_are_listed_the_newest_first(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    other, _ = await jobs.create_queue("other", JobQueueSettings())
    await jobs.start_operation("op-x", PURGE, other, JobFilter(), None)
    for number in range(3):
        await jobs.start_operation(f"op-{number}", PURGE, queue, JobFilter(), None)
        await clock.advance(seconds=1)
    assert [one.id for one in await jobs.operations(queue, limit=10)] == ["op-2", "op-1", "op-0"]
    assert [one.id for one in await jobs.operations(queue, limit=1)] == ["op-2"]
    assert [one.id for one in await jobs.operations(other, limit=10)] == ["op-x"]


async def test_of_the_ended_ones_so_many_are_kept(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    assert isinstance(jobs, ScriptedJobs)
    await make_dead(jobs, queue, 1)
    await jobs.start_operation("running", REQUEUE, queue, JobFilter(task="none"), 1)
    few = jobs.limited(JobLimits(operations_kept_per_queue_max=2))
    for number in range(4):
        await clock.advance(ms=REPEAT_WINDOW_MS)
        await few.start_operation(f"op-{number}", PURGE, queue, JobFilter(), None)
        await few.cancel_operation(f"op-{number}")
    kept = [one.id for one in await few.operations(queue, limit=10)]
    assert kept == ["op-3", "op-2", "running"]


async def test_an_operation_is_cancelled(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    dead = await make_dead(jobs, queue, 5)
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), 20)
    assert await jobs.advance_operations() == 100
    await clock.advance(seconds=1)
    cancelled = await jobs.cancel_operation("op-1")
    assert (cancelled.state, cancelled.done, cancelled.ended_at_ms) == (OperationState.CANCELLED, 2, clock.now_ms())
    assert await jobs.advance_operations() is None
    assert await in_state(jobs, JobState.DEAD) == dead[2:]
    await clock.advance(seconds=1)
    assert await jobs.cancel_operation("op-1") == cancelled


async def test_one_that_ended_is_not_cancelled(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)
    await run(jobs, clock)
    assert (await jobs.cancel_operation("op-1")).state is OperationState.DONE


async def test_what_is_missing(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(OperationDoesNotExist):
        await jobs.operation("op-1")
    with pytest.raises(OperationDoesNotExist):
        await jobs.cancel_operation("op-1")
    await jobs.delete_queue(queue)
    with pytest.raises(JobQueueDoesNotExist):
        await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)


async def test_the_rate_is_kept(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    dead = await make_dead(jobs, queue, 10)
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), 20)
    for done in (2, 4, 6, 8):
        # A tenth of a second's worth, whoever asks and how often.
        assert await jobs.advance_operations() == 100
        assert await jobs.advance_operations() == 100
        assert (await jobs.operation("op-1")).done == done
        assert await in_state(jobs, JobState.QUEUED) == dead[:done]
        await clock.advance(ms=100)
    assert await run(jobs, clock) <= 100
    assert (await jobs.operation("op-1")).done == 10


async def test_a_slow_rate_does_one_at_a_time(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await make_dead(jobs, queue, 3)
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), 2)
    assert await jobs.advance_operations() == 500
    assert (await jobs.operation("op-1")).done == 1
    assert await run(jobs, clock) >= 1_000


async def test_without_a_rate_a_step_is_bounded_all_the_same(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    await add_many(jobs, queue, 450)
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)
    for done in (200, 400):
        assert await jobs.advance_operations() == 0
        assert (await jobs.operation("op-1")).done == done
    assert await jobs.advance_operations() is None
    assert (await jobs.operation("op-1")).done == 450


async def test_a_search_that_finds_nothing_for_long_is_bounded(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    assert isinstance(jobs, ScriptedJobs)
    await add_many(jobs, queue, 20)
    last = await add(jobs, queue, task="rare")
    few = jobs.limited(JobLimits(list_rows_max=15))
    await few.start_operation("op-1", PURGE, queue, JobFilter(task="rare"), None)
    assert await few.advance_operations() == 0
    assert (await few.operation("op-1")).state is OperationState.RUNNING
    await run(few, clock)
    assert (await few.operation("op-1")).done == 1
    with pytest.raises(JobDoesNotExist):
        await jobs.job(last)


async def test_jobs_that_come_later_are_not_meant(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add_many(jobs, queue, 3)
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)
    later = await add_many(jobs, queue, 3)
    await run(jobs, clock)
    assert await in_state(jobs, JobState.QUEUED) == later
    assert (await jobs.operation("op-1")).done == 3


async def test_a_step_whose_answer_was_lost_is_not_counted_twice(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, failpoints: Failpoints
) -> None:
    await make_dead(jobs, queue, 3)
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), 10)
    lose_the_answer(failpoints, "jobs.advance_operations.committed")
    with pytest.raises(Exception, match="the answer was lost"):
        await jobs.advance_operations()
    assert (await jobs.operation("op-1")).done == 1
    await run(jobs, clock)
    assert (await jobs.operation("op-1")).done == 3


@on_postgres
async def test_two_nodes_keep_one_pace(home: Home, jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    other = (await home.open()).jobs
    await make_dead(jobs, queue, 12)
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), 20)
    for done in range(2, 13, 2):
        await asyncio.gather(*(node.advance_operations() for node in (jobs, other) for _ in range(3)))
        assert (await other.operation("op-1")).done == done
        await clock.advance(ms=100)
    assert (await jobs.counts(queue)).by_state[JobState.QUEUED] == 12


# -- requeueing -----------------------------------------------------------------------------------


async def test_dead_jobs_are_queued_again_with_fresh_budgets(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    [job_id] = await make_dead(jobs, queue, 1)
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), None)
    await run(jobs, clock)
    job = await jobs.job(job_id)
    assert (job.state, job.failures, job.losses, job.attempts) == (JobState.QUEUED, 0, 0, 1)
    assert job.finished_at_ms is None
    assert (await jobs.counts(queue)).by_state[JobState.DEAD] == 0
    assert (await jobs.events(job_id, limit=10)).events[-1].kind == "job.retried"
    assert await complete(jobs, queue) == job_id


async def test_only_dead_jobs_of_the_queue_that_match_are_requeued(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    other, _ = await jobs.create_queue("other", JobQueueSettings())
    await make_dead(jobs, other, 1)
    broken = await make_dead(jobs, queue, 2, "Broken")
    odd = await make_dead(jobs, queue, 2, "Odd")
    cancelled = await add(jobs, queue)
    await jobs.cancel(cancelled)
    wanted = JobFilter(failure_kind="Odd", states=(JobState.DEAD, JobState.CANCELLED))
    await jobs.start_operation("op-1", REQUEUE, queue, wanted, None)
    await run(jobs, clock)
    assert await in_state(jobs, JobState.QUEUED) == odd
    assert (await jobs.job(cancelled)).state is JobState.CANCELLED
    assert set(broken) < set(await in_state(jobs, JobState.DEAD))


async def test_jobs_with_a_tag_are_requeued(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    for tags in (("red",), ("blue",), ("red", "blue")):
        await add(jobs, queue, tags=tags)
        await die(jobs, queue)
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(tag="red"), None)
    await run(jobs, clock)
    assert (await jobs.operation("op-1")).done == 2


async def test_a_job_that_dies_again_is_not_requeued_again(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await make_dead(jobs, queue, 2)
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), 1)
    await jobs.advance_operations()
    again = await die(jobs, queue)
    await run(jobs, clock)
    assert await in_state(jobs, JobState.DEAD) == [again]
    assert (await jobs.operation("op-1")).done == 2


async def test_a_unique_key_that_is_taken_keeps_a_dead_job_dead(
    jobs: JobStore, queue: JobQueue, clock: ManualClock
) -> None:
    dead = []
    for _ in range(3):
        await add(jobs, queue, unique_key="u")
        dead.append(await die(jobs, queue))
    await add(jobs, queue, unique_key="v")
    dead.append(await die(jobs, queue))
    taken = await add(jobs, queue, unique_key="v")
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), None)
    await run(jobs, clock)
    assert await in_state(jobs, JobState.QUEUED) == [dead[0], taken]
    assert await in_state(jobs, JobState.DEAD) == dead[1:]
    assert (await jobs.operation("op-1")).done == 1


async def test_requeued_jobs_go_back_to_their_lanes(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    lane = Lane(key="printer", width=1)
    await add_many(jobs, queue, 3, lane=lane)
    dead = [await die(jobs, queue) for _ in range(3)]
    # With all of its jobs finished, the lane itself is removed.
    while await jobs.sweep():
        pass
    await jobs.start_operation("op-1", REQUEUE, queue, JobFilter(), None)
    await run(jobs, clock)
    offers = (await jobs.offer(queue, count=10, worker="w")).offers
    assert [offer.lease.job_id for offer in offers] == dead[:1]


# -- purging --------------------------------------------------------------------------------------


async def test_waiting_jobs_are_removed(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add(jobs, queue)
    done = await complete(jobs, queue)
    await add(jobs, queue)
    running = await start(jobs, queue)
    await add(jobs, queue)
    [offer] = (await jobs.offer(queue, count=1, worker="w")).offers
    await add(jobs, queue)
    await report(jobs, Fail(await start(jobs, queue), Failure(kind="Busy", retry_after_ms=60_000)))
    await add_many(jobs, queue, 2, tags=("a",), unique_key=None)
    await add_many(jobs, queue, 2, delay_ms=60_000)
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)
    await run(jobs, clock)
    assert (await jobs.operation("op-1")).done == 5
    left = ids_of(await jobs.jobs(JobFilter(), limit=100))
    assert sorted(left) == sorted([done, running.job_id, offer.lease.job_id])
    counts = await jobs.counts(queue)
    assert {state: number for state, number in counts.by_state.items() if number} == {
        JobState.SUCCEEDED: 1,
        JobState.RUNNING: 1,
        JobState.OFFERED: 1,
    }
    assert counts.oldest_due_ms is None
    assert await jobs.jobs(JobFilter(tag="a"), limit=10) == []
    assert (await jobs.offer(queue, count=10, worker="w")).offers == []


async def test_only_waiting_jobs_that_match_are_purged(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    queued = await add_many(jobs, queue, 2)
    other = await add(jobs, queue, task="print", delay_ms=1_000)
    scheduled = await add(jobs, queue, delay_ms=1_000)
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(states=(JobState.SCHEDULED,), task="mail"), None)
    await run(jobs, clock)
    assert sorted(ids_of(await jobs.jobs(JobFilter(), limit=10))) == sorted([*queued, other])
    with pytest.raises(JobDoesNotExist):
        await jobs.job(scheduled)


async def test_a_purged_job_is_forgotten_with_its_keys(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, opener: Opener, folder: Path
) -> None:
    first = draft(tags=("a",), unique_key="u", idempotency_key=b"k" * 32, fingerprint=b"f")
    await jobs.enqueue(queue, [first])
    told: asyncio.Queue[str] = asyncio.Queue()
    jobs.listen(lambda *_: None, told.put_nowait)
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)
    await run(jobs, clock)
    # Who follows it learns that it is gone.
    assert await told.get() == first.id
    with pytest.raises(JobDoesNotExist):
        await jobs.events(first.id, limit=1)
    # What a repeat of the request would be known by is kept for as long as one may come.
    assert await rows_left(opener, folder) == {"job_operation": 1, "job_key": 1, "job_spent": 1}
    await clock.advance(ms=REPEAT_WINDOW_MS)
    second = await add(jobs, queue, unique_key="u", idempotency_key=b"k" * 32, fingerprint=b"f")
    assert second != first.id
    await jobs.sweep()
    assert "job_spent" not in await rows_left(opener, folder)


async def test_what_has_waited_for_long_is_purged_without_a_trace(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, opener: Opener, folder: Path
) -> None:
    await add(jobs, queue, idempotency_key=b"k" * 32)
    await clock.advance(ms=REPEAT_WINDOW_MS)
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)
    await run(jobs, clock)
    assert await rows_left(opener, folder) == {"job_operation": 1}


async def test_a_purge_lets_the_next_in_line_go(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    group = Lane(key="g", ordered=True)
    await add(jobs, queue, lane=group, delay_ms=60_000, task="late")
    behind = await add(jobs, queue, lane=group)
    assert (await jobs.offer(queue, count=10, worker="w")).offers == []
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(task="late"), None)
    await run(jobs, clock)
    assert [offer.lease.job_id for offer in (await jobs.offer(queue, count=10, worker="w")).offers] == [behind]


async def test_a_purge_gives_no_place_to_what_it_removes(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    key = Lane(key="k", width=1)
    for _ in range(2):
        await add(jobs, queue, lane=key, task="gone")
    kept = [await add(jobs, queue, lane=key) for _ in range(2)]
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(task="gone"), None)
    await run(jobs, clock)
    assert [await complete(jobs, queue) for _ in kept] == kept


async def test_large_jobs_are_purged_in_several_steps(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add_many(jobs, queue, 5, payload=b'"%s"' % (b"x" * 3_000_000))
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)
    assert await jobs.advance_operations() == 0
    assert (await jobs.operation("op-1")).done == 3
    await run(jobs, clock)
    assert (await jobs.operation("op-1")).done == 5
    assert await jobs.jobs(JobFilter(), limit=10) == []


async def test_a_purged_queue_can_be_deleted(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await add_many(jobs, queue, 3, lane=Lane(key="g", ordered=True))
    await jobs.start_operation("op-1", PURGE, queue, JobFilter(), None)
    await run(jobs, clock)
    await jobs.delete_queue(queue)
    with pytest.raises(OperationDoesNotExist):
        await jobs.operation("op-1")
