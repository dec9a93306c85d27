"""`task.opts(tx=conn)`: a job exists if and only if the transaction of a connection of the user's was committed."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, closing
from typing import Any

import asyncpg
import psycopg
import pytest
from django.db import transaction

from penstock import Call, Job, Penstock
from penstock.client.errors import (
    Invalid,
    JobNotFound,
    NoTransaction,
    TaskInvalid,
    TransactionUnsupported,
)
from penstock.client.tasks.task import Task
from tests.end_to_end.running import RunningServer
from tests.tasks.working import PATIENCE_S, working
from tests.transactions.staging.steps import Connection
from tests.transactions.user_connections import POSTGRES, USER, Opened

Greet = Task[[int], Any, int]


@pytest.fixture
async def app(
    request: pytest.FixtureRequest, postgres_node: RunningServer, postgres_url: str
) -> AsyncIterator[Penstock]:
    """A server on the user's database; or, where a test asks for it, an engine in this process."""
    in_process = getattr(request, "param", "http") == "postgresql"
    async with Penstock(postgres_url if in_process else postgres_node.url, timeout=20) as opened:
        yield opened


on_both = pytest.mark.parametrize("app", ["http", "postgresql"], indirect=True)


def doubled(app: Penstock, name: str) -> Greet:
    @app.task(name=name, queue=name)
    async def double(number: int) -> int:
        return 2 * number

    return double


@pytest.fixture
def double(app: Penstock, name: str) -> Greet:
    return doubled(app, name)


@pytest.fixture
async def users(postgres_url: str, postgres_node: RunningServer) -> AsyncIterator[Connection]:
    """A connection of the user's, to the database of the server."""
    assert postgres_node.url, "it has made the schema"
    opened = await asyncpg.connect(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture(params=POSTGRES)
def opening(
    request: pytest.FixtureRequest, postgres_url: str, postgres_node: RunningServer
) -> AbstractAsyncContextManager[Opened]:
    assert postgres_node.url
    return POSTGRES[request.param](postgres_url)


async def test_each_kind_of_connection_takes_jobs_back_with_a_rollback(
    double: Greet, opening: AbstractAsyncContextManager[Opened]
) -> None:
    async with opening as opened:
        rolled_back = await double.opts(tx=opened.connection).enqueue(1)
        await opened.rollback()
    with pytest.raises(JobNotFound):
        await rolled_back.view()


async def test_each_kind_of_connection_enqueues_with_its_commit(
    app: Penstock, double: Greet, opening: AbstractAsyncContextManager[Opened]
) -> None:
    async with opening as opened:
        jobs = [await double.opts(tx=opened.connection).enqueue(1)]
        jobs += map(_job, await app.enqueue_many([double.call(number) for number in range(2)], tx=opened.connection))
        await opened.commit()
    assert [(await job.view()).state for job in jobs] == ["queued"] * 3


@on_both
@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
async def test_a_committed_job_is_there_and_runs(app: Penstock, double: Greet, postgres_url: str, kind: str) -> None:
    async with POSTGRES[kind](postgres_url) as opened:
        tx = opened.connection
        job = await double.opts(tx=tx, tags=["x"], priority=9).enqueue(21)
        many = await app.enqueue_many([double.call(number) for number in range(3)], tx=tx)
        with pytest.raises(JobNotFound):
            await job.view()
        await opened.commit()
    view = await job.view()
    assert (view.state, view.tags, view.priority) == ("queued", ("x",), 9)
    async with working(app):
        assert await job.result(PATIENCE_S) == 42
        assert [await _job(one).result(PATIENCE_S) for one in many] == [0, 2, 4]


def _job(outcome: Job[int] | Exception) -> Job[int]:
    assert isinstance(outcome, Job), outcome
    return outcome


@on_both
async def test_code_without_an_event_loop_enqueues_too(app: Penstock, double: Greet, postgres_url: str) -> None:
    def commit() -> list[Job[int]]:
        with psycopg.connect(postgres_url) as connection:
            jobs = [double.opts(tx=connection).enqueue_sync(1)]
            jobs += map(_job, app.enqueue_many_sync([double.call(2), double.call(3)], tx=connection))
        return jobs

    def roll_back() -> Job[int]:
        with psycopg.connect(postgres_url) as connection:
            job = double.opts(tx=connection.cursor()).enqueue_sync(1)
            connection.rollback()
        return job

    assert [(await job.view()).state for job in await asyncio.to_thread(commit)] == ["queued"] * 3
    with pytest.raises(JobNotFound):
        await (await asyncio.to_thread(roll_back)).view()


async def test_more_jobs_than_one_call_takes_are_staged_in_slices(
    app: Penstock, double: Greet, users: Connection
) -> None:
    async with users.transaction():
        jobs = [_job(one) for one in await app.enqueue_many(map(double.call, range(1_001)), tx=users)]
    assert len({job.id for job in jobs}) == 1_001
    assert (await jobs[-1].view()).state == "queued"


async def test_no_calls_are_no_jobs(app: Penstock, users: Connection) -> None:
    none: list[Call[int]] = []
    async with users.transaction():
        assert await app.enqueue_many(none, tx=users) == []


async def test_the_id_is_the_callers_if_there_is_one(double: Greet, users: Connection) -> None:
    job_id = "01900000-0000-7000-8000-0000000000ff"
    async with users.transaction():
        assert (await double.opts(tx=users, id=job_id).enqueue(1)).id == job_id


async def test_none_is_no_transaction(double: Greet) -> None:
    assert (await (await double.opts(tx=None).enqueue(1)).view()).state == "queued"


# -- what is wrong --------------------------------------------------------------------------------


async def test_a_connection_that_commits_each_statement_is_refused(
    double: Greet, users: Connection, postgres_url: str
) -> None:
    with pytest.raises(NoTransaction, match="commits each statement by itself"):
        await double.opts(tx=users).enqueue(1)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        with pytest.raises(NoTransaction):
            await double.opts(tx=connection).enqueue(1)
        with connection.transaction():
            await double.opts(tx=connection).enqueue(1)


async def test_what_is_no_connection_is_refused(double: Greet) -> None:
    with pytest.raises(TypeError, match=r"not builtins\.str"):
        await double.opts(tx="conn").enqueue(1)


async def test_an_async_connection_is_refused_in_sync_code(double: Greet, users: Connection) -> None:
    def enqueue() -> None:
        double.opts(tx=users).enqueue_sync(1)

    async with users.transaction():
        with pytest.raises(TypeError, match="is async"):
            await asyncio.to_thread(enqueue)


async def test_another_kind_of_database_is_refused(double: Greet) -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(TransactionUnsupported, match="outbox"):
        await double.opts(tx=connection).enqueue(1)


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "sqlalchemy-async", "sqlalchemy-session", "django-postgres"])
async def test_a_database_without_penstock_says_so(double: Greet, user_dsn: str, kind: str) -> None:
    async with POSTGRES[kind](user_dsn) as opened:
        with pytest.raises(TransactionUnsupported, match=r"(?s)penstock serve.*outbox"):
            await double.opts(tx=opened.connection).enqueue(1)
        await opened.rollback()


async def test_a_schema_from_before_says_so(double: Greet, dsn: str) -> None:
    async with POSTGRES["psycopg"](dsn) as opened:
        opened.connection.execute("DROP FUNCTION penstock.enqueue_jobs_v1(json)")
        with pytest.raises(TransactionUnsupported, match="or one of an older version"):
            await double.opts(tx=opened.connection).enqueue(1)
        await opened.rollback()


async def test_django_enqueues_inside_of_atomic_only(double: Greet, postgres_url: str) -> None:
    async with POSTGRES["django-postgres"](postgres_url) as opened:
        opened.connection.set_autocommit(autocommit=True)
        with pytest.raises(NoTransaction, match="Django"):
            await double.opts(tx=opened.connection).enqueue(1)
        with transaction.atomic(using=USER):
            job = await double.opts(tx=opened.connection).enqueue(1)
            with contextlib.suppress(ZeroDivisionError), transaction.atomic(using=USER):
                lost = await double.opts(tx=opened.connection).enqueue(2)
                raise ZeroDivisionError
    assert (await job.view()).state == "queued"
    with pytest.raises(JobNotFound):
        await lost.view()


async def test_a_role_without_the_right_is_told_the_grants(double: Greet, users: Connection) -> None:
    await users.execute("CREATE ROLE nobody_special")
    try:
        async with users.transaction():
            await users.execute("SET LOCAL ROLE nobody_special")
            with pytest.raises(TransactionUnsupported, match="GRANT EXECUTE ON FUNCTION"):
                async with users.transaction():
                    await double.opts(tx=users).enqueue(1)
    finally:
        await users.execute("DROP ROLE nobody_special")


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "sqlalchemy-async", "sqlalchemy-session", "django-postgres"])
async def test_what_the_function_refuses_is_an_invalid_request(
    double: Greet, app: Penstock, postgres_url: str, kind: str
) -> None:
    async with POSTGRES[kind](postgres_url) as opened:
        with pytest.raises(Invalid, match=r"expires_in_ms is not after") as caught:
            await double.opts(tx=opened.connection, delay=60, expires=60).enqueue(1)
        assert caught.value.field == "expires_in_ms"
        await opened.rollback()


async def test_a_payload_that_postgresql_cannot_hold_is_an_invalid_request(app: Penstock, users: Connection) -> None:
    @app.task(name="note")
    async def note(text: str) -> None:
        raise AssertionError(text)

    async with users.transaction():
        with pytest.raises(Invalid, match="Unicode"):
            async with users.transaction():
                await note.opts(tx=users).enqueue("\x00")


async def test_an_error_that_has_nothing_to_do_with_us_is_raised_as_it_is(double: Greet, users: Connection) -> None:
    transaction = users.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await users.execute("SELECT 1 / 0")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await double.opts(tx=users).enqueue(1)
    await transaction.rollback()


@pytest.mark.parametrize("url", ["memory:", "sqlite:{tmp_path}/jobs.db"])
async def test_an_app_whose_jobs_are_elsewhere_refuses(url: str, tmp_path: object, users: Connection) -> None:
    async with Penstock(url.format(tmp_path=tmp_path)) as app:
        task = doubled(app, "double")
        async with users.transaction():
            with pytest.raises(TransactionUnsupported, match="outbox"):
                await task.opts(tx=users).enqueue(1)


FLOWS: dict[str, Callable[[Penstock, Greet, Connection], Any]] = {
    "fan_out": lambda app, task, tx: app.fan_out([task.opts(tx=tx).call(1)], then=_total(app)),
    "then": lambda _, task, tx: task.opts(tx=tx).call(1).then(task).enqueue(),
    "follower": lambda _, task, tx: task.call(1).then(task.opts(tx=tx)).enqueue(),
}


def _total(app: Penstock) -> Any:
    @app.task(name="total")
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    return total


@pytest.mark.parametrize("flow", FLOWS)
async def test_flows_cannot_be_staged(app: Penstock, double: Greet, users: Connection, flow: str) -> None:
    async with users.transaction():
        with pytest.raises(TaskInvalid, match="cannot be enqueued with tx="):
            await FLOWS[flow](app, double, users)


async def test_calls_of_many_share_one_transaction(app: Penstock, double: Greet, users: Connection) -> None:
    async with users.transaction():
        calls = [double.opts(tx=users).call(1)]
        with pytest.raises(TaskInvalid, match="Give tx to enqueue_many itself"):
            await app.enqueue_many(calls)
        assert len(await app.enqueue_many(calls, tx=users)) == 1


def test_a_task_cannot_be_declared_with_a_transaction() -> None:
    app = Penstock("memory:")
    with pytest.raises(TypeError, match="There is no option 'tx'"):
        app.task(name="t", tx=object())(lambda: None)  # type: ignore[call-overload]


# -- app.testing() --------------------------------------------------------------------------------


def test_in_a_test_calls_with_a_transaction_are_enqueued_at_once(name: str) -> None:
    """The engine of a test is in memory, and needs no database."""
    app = Penstock("http://localhost:1")
    task = doubled(app, name)
    with app.testing() as tester:
        task.opts(tx=object()).enqueue_sync(4)
        app.enqueue_many_sync([task.call(5)], tx=object())
        tester.assert_enqueued(task, number=4)
        tester.run_all()
