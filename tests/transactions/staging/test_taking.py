"""What a transaction staged is enqueued once it is committed: once, in order, whatever becomes of the nodes."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job import JobState
from penstock.domain.job_errors import JobDoesNotExist
from penstock.domain.job_limits import JobLimits
from penstock.domain.limits import HOUR_MS
from penstock.engine.engine import Engine
from penstock.store.postgres import staging
from penstock.testing import ManualClock
from penstock.wire.jobs.staging import read_staged
from tests.transactions.staging.conftest import OpenEngine
from tests.transactions.staging.steps import QUEUE, Connection, jobs_of, left, payloads, stage, take

SLOW_LOOKS = JobLimits(advance_idle_ms=HOUR_MS)
"""Of a node that does nothing unless it is notified."""

JUST_STAGED = "SELECT penstock.now_ms(NULL) <= max(staged_at) + 5 FROM penstock.staged_job"
LOOKS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%penstock.staged_job WHERE id%'
"""


async def test_a_job_is_there_after_the_commit_and_not_before(engine: Engine, connection: Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    job_id = await stage(connection, {"to": "a"})
    await take(engine)
    with pytest.raises(JobDoesNotExist):
        await engine.jobs.looking.job(job_id)
    await transaction.commit()
    await take(engine)
    [job] = await jobs_of(engine)
    assert (job.id, job.task, job.queue, job.state) == (job_id, "greet", QUEUE, JobState.QUEUED)
    assert await left(connection) == []


async def test_a_rollback_leaves_nothing(engine: Engine, connection: Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    job_id = await stage(connection)
    await transaction.rollback()
    await take(engine)
    with pytest.raises(JobDoesNotExist):
        await engine.jobs.looking.job(job_id)
    assert await left(connection) == []


async def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it(engine: Engine, connection: Connection) -> None:
    async with connection.transaction():
        await stage(connection, 1)
        inner = connection.transaction()
        await inner.start()
        await stage(connection, 2)
        await inner.rollback()
        async with connection.transaction():
            await stage(connection, 3)
    await take(engine)
    assert await payloads(engine) == [1, 3]


async def test_a_job_that_is_committed_can_be_asked_for_at_once(engine: Engine, connection: Connection) -> None:
    """No node has taken it in, so the one that is asked does."""
    looking = engine.jobs.looking
    assert (await looking.job(await stage(connection))).state is JobState.QUEUED
    assert (await looking.result(await stage(connection))).state is JobState.QUEUED
    assert (await looking.cancel(await stage(connection))).state is JobState.CANCELLED
    assert (await looking.events(await stage(connection))).complete


async def test_an_engine_that_cannot_read_staged_jobs_leaves_them(dsn: str, connection: Connection) -> None:
    async with Engine.open(dsn) as engine:
        job_id = await stage(connection)
        with pytest.raises(JobDoesNotExist):
            await engine.jobs.looking.job(job_id)
    assert len(await left(connection)) == 1


async def test_a_commit_wakes_an_idle_node_at_once(open_engine: OpenEngine, connection: Connection) -> None:
    engine = await open_engine(upkeep=True, job_limits=SLOW_LOOKS)
    stored = asyncio.Event()
    engine.store.jobs.listen(lambda _queue, _count: stored.set(), lambda _job: None)
    async with asyncio.timeout(20):
        # The node looks once as it starts. What comes after that, it only finds by the notification.
        await _until_quiet(engine)
        stored.clear()
        await stage(connection)
        await stored.wait()
    assert len(await jobs_of(engine)) == 1


async def _until_quiet(engine: Engine) -> None:
    [stager] = [upkeep for upkeep in engine.jobs.upkeep if upkeep.name == "stager"]
    while stager._next_at_ms > 2**62:  # noqa: ASYNC110, SLF001 - nothing else tells that it pauses
        await asyncio.sleep(0)


async def test_a_notification_that_is_lost_delays_a_job_and_no_more(
    open_engine: OpenEngine, connection: Connection
) -> None:
    engine = await open_engine(upkeep=True, job_limits=JobLimits(advance_idle_ms=20))
    async with asyncio.timeout(20):
        await connection.execute(
            "INSERT INTO penstock.staged_job (id, queue, request, staged_at) "
            'VALUES (penstock.new_job_id(), \'mail\', \'{"queue": "mail", "task": "t"}\', 0)'
        )
        while not await jobs_of(engine):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)


async def test_several_nodes_take_each_job_once(
    open_engine: OpenEngine, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "ROWS_MAX", 7)
    nodes = [await open_engine() for _ in range(4)]
    queues = [f"q{number}" for number in range(3)]
    async with connection.transaction():
        for number in range(60):
            for queue in queues:
                await stage(connection, number, queue, group="g")
    await asyncio.gather(*(take(node) for node in nodes))
    # Who was last may have left the queues that another one was busy with.
    await take(nodes[0])
    for queue in queues:
        assert await payloads(nodes[0], queue) == list(range(60)), "each is there once, and in order"
    assert await left(connection) == []


async def test_a_node_that_is_busy_with_a_queue_keeps_others_from_it_alone(
    open_engine: OpenEngine, connection: Connection
) -> None:
    failpoints = Failpoints()
    busy, other = await open_engine(failpoints=failpoints), await open_engine()
    await stage(connection, 1)
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        reached.set()
        await go_on.wait()

    failpoints.arm("jobs.take_staged.written", pause)
    taking = asyncio.create_task(take(busy))
    await reached.wait()
    await stage(connection, 2)
    await stage(connection, 3, "another")
    await take(other)
    assert (await payloads(other), await payloads(other, "another")) == ([], [3])
    go_on.set()
    await taking
    await take(other)
    assert await payloads(other) == [1, 2]


async def test_who_asks_for_a_job_waits_for_the_node_that_takes_it_in(
    open_engine: OpenEngine, connection: Connection
) -> None:
    failpoints = Failpoints()
    busy, other = await open_engine(failpoints=failpoints), await open_engine()
    job_id = await stage(connection)
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        reached.set()
        await go_on.wait()

    failpoints.arm("jobs.take_staged.written", pause)
    taking = asyncio.create_task(take(busy))
    await reached.wait()
    looking = asyncio.create_task(other.jobs.looking.job(job_id))
    async with asyncio.timeout(20):
        while await connection.fetchval(LOOKS) < 1:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0)
    assert not looking.done()
    go_on.set()
    assert (await looking).id == job_id
    await taking


async def test_who_asks_for_a_job_finds_it_though_another_node_is_quicker(
    open_engine: OpenEngine, connection: Connection
) -> None:
    failpoints = Failpoints()
    quicker, asked = await open_engine(), await open_engine(failpoints=failpoints)
    job_id = await stage(connection)
    # It has seen that the job is staged.
    failpoints.arm("jobs.take_staged.begun", lambda: take(quicker))
    assert (await asked.jobs.looking.job(job_id)).id == job_id


@pytest.mark.parametrize("place", ["written", "committed"])
async def test_a_lost_answer_neither_loses_nor_doubles(
    engine: Engine, connection: Connection, failpoints: Failpoints, place: str
) -> None:
    for number in range(3):
        await stage(connection, number)

    def lose() -> None:
        raise ConnectionResetError("gone")

    failpoints.arm(f"jobs.take_staged.{place}", lose)
    await take(engine)
    assert await payloads(engine) == [0, 1, 2]
    assert await left(connection) == []


async def test_a_node_that_dies_in_between_leaves_all_to_the_next(
    engine: Engine, open_engine: OpenEngine, connection: Connection, failpoints: Failpoints
) -> None:
    """It has enqueued jobs and removed their rows, but not committed that."""
    for number in range(3):
        await stage(connection, number)

    def die() -> None:
        raise StoreUnavailable("as if it were killed")

    failpoints.arm("jobs.take_staged.written", die)
    with pytest.raises(StoreUnavailable):
        await take(engine)
    assert await payloads(engine) == []
    other = await open_engine()
    await take(other)
    assert await payloads(other) == [0, 1, 2]


async def test_a_delay_counts_from_the_call_of_the_function(engine: Engine, connection: Connection) -> None:
    delayed = await stage(connection, delay_ms=60_000, expires_in_ms=90_000)
    past = await stage(connection, delay_ms=1)
    expired = await stage(connection, expires_in_ms=1)
    async with asyncio.timeout(20):
        while await connection.fetchval(JUST_STAGED):  # noqa: ASYNC110 - the database's clock
            await asyncio.sleep(0)
    at_ms = await connection.fetchval("SELECT staged_at FROM penstock.staged_job WHERE id = $1", delayed)
    await take(engine)
    rows = await connection.fetch("SELECT id, state, due_at, expires_at FROM penstock.job")
    found = {row["id"]: tuple(row)[1:] for row in rows}
    assert found[delayed] == (JobState.SCHEDULED, at_ms + 60_000, at_ms + 90_000)
    assert found[past] == (JobState.QUEUED, None, None)
    async with asyncio.timeout(20):
        while (await engine.store.jobs.job(expired)).state is not JobState.CANCELLED:
            await engine.store.jobs.advance()
    job = await engine.jobs.looking.job(expired)
    assert job.attempts == 0


async def test_a_clock_that_a_test_has_moved_shortens_no_delay(
    dsn: str, connection: Connection, clock: ManualClock
) -> None:
    await clock.advance(seconds=100 * 365 * 86_400)
    async with Engine.open(dsn, clock=clock, upkeep=False, read_staged=read_staged) as engine:
        job_id = await stage(connection, delay_ms=3_600_000)
        await take(engine)
        assert (await engine.jobs.looking.job(job_id)).state is JobState.SCHEDULED


async def test_an_instant_is_kept_as_it_is(engine: Engine, connection: Connection) -> None:
    at_ms = round(time.time() * 1_000) + 3_600_000  # noqa: TID251 - a wall-clock instant, as users give it
    await stage(connection, run_at_ms=at_ms)
    await take(engine)
    assert await connection.fetchval("SELECT due_at FROM penstock.job") == at_ms


async def test_jobs_that_come_due_are_expected(open_engine: OpenEngine, connection: Connection) -> None:
    """The node that takes a job in makes it ready when its time has come, without a look in between."""
    engine = await open_engine(upkeep=True, job_limits=SLOW_LOOKS)
    job_id = await stage(connection, delay_ms=50)
    async with asyncio.timeout(20):
        while (await engine.jobs.looking.job(job_id)).state is not JobState.QUEUED:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)
