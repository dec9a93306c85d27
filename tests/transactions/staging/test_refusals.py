"""What is refused after the commit is not lost and holds nobody up: tried again, or kept with the reason."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from penstock.domain.job import JobState
from penstock.domain.job_errors import JobDoesNotExist
from penstock.domain.job_queue import JobQueueSettings, Rate
from penstock.engine.engine import Engine
from penstock.server.counters import RequestCounters
from penstock.server.metrics import Metrics
from penstock.store.postgres import staging
from tests.support.board import Board
from tests.support.job_steps import finish, start
from tests.transactions.staging.steps import QUEUE, Connection, left, payloads, stage, take

A_UUID = "01900000-0000-7000-8000-000000000001"


async def make_queue(engine: Engine, name: str = QUEUE, **settings: Any) -> None:
    await engine.store.jobs.create_queue(name, JobQueueSettings(**settings))


async def lift_rates(engine: Engine) -> None:
    jobs = engine.store.jobs
    await jobs.save_queue(await jobs.find_queue(QUEUE), settings=JobQueueSettings())
    engine.store.jobs._held.clear()  # type: ignore[attr-defined]  # noqa: SLF001 - instead of ten seconds


async def test_a_full_queue_takes_the_rest_when_there_is_room(engine: Engine, connection: Connection) -> None:
    await make_queue(engine, depth_max=2)
    for number in range(4):
        await stage(connection, number)
    await stage(connection, "other", "another")
    await take(engine)
    assert (await payloads(engine), await payloads(engine, "another")) == ([0, 1], ["other"])
    assert await left(connection) == [("2", "JobRefused", False), ("3", "JobRefused", False)]
    jobs = engine.store.jobs
    for _ in range(2):
        await finish(jobs, await start(jobs, await jobs.find_queue(QUEUE)))
    await _until_taken(engine, connection)
    assert await payloads(engine) == [0, 1, 2, 3]


async def test_a_full_queue_is_not_asked_again_and_again(
    engine: Engine, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "ROWS_MAX", 2)
    await make_queue(engine, depth_max=1)
    for number in range(9):
        await stage(connection, number)
    await take(engine)
    in_ms = await engine.jobs.staging.step()
    assert in_ms is not None
    assert 0 < in_ms <= 1_000
    refused = [row[0] for row in await left(connection) if row[1] is not None]
    assert refused == ["1"], "those behind it were not tried"


async def test_a_rate_of_one_tenant_holds_up_no_other(engine: Engine, connection: Connection) -> None:
    await make_queue(engine, rate_per_tenant=Rate(per_second=0.1, burst=1))
    async with connection.transaction():
        for number in range(4):
            await stage(connection, number, tenant="a")
        await stage(connection, "b", tenant="b")
    await take(engine)
    assert await payloads(engine) == [0, "b"]
    assert await left(connection) == [(str(number), "JobRefused", False) for number in (1, 2, 3)]
    waits = await connection.fetchval("SELECT max(next_at) - min(next_at) FROM penstock.staged_job")
    assert waits >= 10_000, "each gets a token of its own"
    await lift_rates(engine)
    await connection.execute("UPDATE penstock.staged_job SET next_at = 1")
    await _until_taken(engine, connection)
    assert sorted((await payloads(engine))[2:]) == [1, 2, 3]


async def test_a_group_keeps_its_order_when_its_first_job_has_to_wait(engine: Engine, connection: Connection) -> None:
    await make_queue(engine, rate_per_tenant=Rate(per_second=50, burst=1))
    number = 0
    async with asyncio.timeout(30):
        while number < 30 or await left(connection):
            if number < 30:
                # Each comes while others of its group wait, and might find the token that those hoped for.
                await stage(connection, number, group="g")
                number += 1
            await take(engine)
    assert await payloads(engine) == list(range(30))


async def test_the_rate_of_a_queue_is_kept(engine: Engine, connection: Connection) -> None:
    await make_queue(engine, rate=Rate(per_second=0.1, burst=2))
    async with connection.transaction():
        for number in range(6):
            await stage(connection, number)
    await take(engine)
    assert await payloads(engine) == [0, 1]
    await lift_rates(engine)
    await _until_taken(engine, connection)
    assert await payloads(engine) == list(range(6))


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ({"id": A_UUID}, {"id": A_UUID}, "JobExists"),
        ({"idempotency_key": "k"}, {"idempotency_key": "k"}, "IdempotencyKeyReused"),
    ],
    ids=["id", "key"],
)
async def test_what_is_refused_for_good_is_kept_with_the_reason(
    engine: Engine,
    connection: Connection,
    caplog: pytest.LogCaptureFixture,
    first: dict[str, Any],
    second: dict[str, Any],
    problem: str,
) -> None:
    await stage(connection, 1, **first)
    await stage(connection, 2, **second)
    await stage(connection, 3)
    with caplog.at_level(logging.WARNING):
        await take(engine)
    assert await payloads(engine) == [1, 3]
    assert await left(connection) == [("2", problem, True)]
    assert "was refused and is kept in penstock.staged_job" in caplog.text
    board = Board(Metrics(engine, RequestCounters()))
    await board.look()
    assert board.value("penstock_jobs_staged", state="refused") == 1
    assert board.value("penstock_jobs_staged", state="waiting") == 0
    # Once more, as the documentation tells operators.
    await connection.execute("UPDATE penstock.staged_job SET id = penstock.new_job_id(), next_at = 0")
    if problem == "JobExists":
        await take(engine)
        assert await left(connection) == []


async def test_a_refused_job_is_not_found(engine: Engine, connection: Connection) -> None:
    await stage(connection, 1, id=A_UUID, queue="another")
    await stage(connection, 1, id=A_UUID)
    await make_queue(engine, "full", depth_max=0)
    waiting = await stage(connection, 1, "full")
    await take(engine)
    with pytest.raises(JobDoesNotExist):
        await engine.jobs.looking.job(waiting)


async def test_the_same_job_twice_is_one_job(engine: Engine, connection: Connection) -> None:
    for _ in range(2):
        await stage(connection, 1, id=A_UUID)
        await stage(connection, 2, idempotency_key="k")
        await stage(connection, 3, unique_key="u")
    await take(engine)
    assert await payloads(engine) == [1, 2, 3]
    assert await left(connection) == []


async def test_a_strict_queue_refuses_a_job_without_a_key(engine: Engine, connection: Connection) -> None:
    await make_queue(engine, strict=True)
    await stage(connection, 1)
    await stage(connection, 2, idempotency_key="k")
    await take(engine)
    assert await payloads(engine) == [2]
    assert await left(connection) == [("1", "IdempotencyKeyNeeded", True)]


@pytest.mark.parametrize(
    ("request_text", "problem"),
    [
        ("no JSON", "JobInvalid"),
        ('{"queue": "mail", "task": "t", "priority": "high"}', "JobInvalid"),
        ('{"queue": "mail", "task": "a\\u0000b", "payload": "poison"}', "JobInvalid"),
        ('{"queue": "mail", "task": "t", "tags": ["\\ud800"]}', "JobInvalid"),
        ("[" * 100_000, "JobInvalid"),
    ],
    ids=["text", "type", "nul", "surrogate", "deep"],
)
async def test_a_row_that_makes_no_sense_holds_up_no_other(
    engine: Engine, connection: Connection, request_text: str, problem: str
) -> None:
    """The functions let none of these through; whoever may write to the table can."""
    await stage(connection, 1)
    await connection.execute(
        "INSERT INTO penstock.staged_job (id, queue, request, staged_at) VALUES (penstock.new_job_id(), 'mail', $1, 0)",
        request_text,
    )
    await stage(connection, 3)
    await take(engine)
    assert await payloads(engine) == [1, 3]
    rows = await connection.fetch("SELECT problem FROM penstock.staged_job WHERE next_at IS NULL")
    assert [row["problem"] for row in rows] == [problem]


async def test_a_queue_whose_name_cannot_be_is_refused(engine: Engine, connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO penstock.staged_job (id, queue, request, staged_at) VALUES ($1, $2, $3, 0)",
        A_UUID,
        "no name",
        json.dumps({"queue": "no name", "task": "t"}),
    )
    await take(engine)
    assert await connection.fetchval("SELECT problem FROM penstock.staged_job") == "JobInvalid"


async def test_a_failure_of_ours_puts_one_job_off_and_no_other(
    engine: Engine, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """What a bug, or a broken index, makes of one row."""
    await connection.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;"
        "CREATE TRIGGER fail BEFORE INSERT ON penstock.job FOR EACH ROW WHEN (NEW.task = 'bad') EXECUTE FUNCTION fail()"
    )
    await stage(connection, 1)
    await connection.fetch("SELECT penstock.enqueue_v1('mail', 'bad', '2')")
    await stage(connection, 3)
    await take(engine)
    assert await payloads(engine) == [1, 3]
    assert await left(connection) == [("2", "RaiseError", False)]
    assert "could not be enqueued" in caplog.text
    await connection.execute("DROP TRIGGER fail ON penstock.job; UPDATE penstock.staged_job SET next_at = 0")
    await take(engine)
    assert await payloads(engine) == [1, 3, 2]


async def _until_taken(engine: Engine, connection: Connection) -> None:
    async with asyncio.timeout(30):
        while await left(connection):
            await take(engine)
            await asyncio.sleep(0.005)


async def test_a_deleted_queue_is_made_again(engine: Engine, connection: Connection) -> None:
    jobs = engine.store.jobs
    await make_queue(engine)
    await jobs.delete_queue(await jobs.find_queue(QUEUE))
    job_id = await stage(connection)
    await take(engine)
    assert (await jobs.job(job_id)).state is JobState.QUEUED
