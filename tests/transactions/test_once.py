from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import time
from pathlib import Path

import psycopg
import pytest

from penstock import Context, Inbox, Penstock, Retry, current
from penstock.client.errors import AttemptStale, NoTransaction
from penstock.domain.ids import OrderedIds
from tests.support.campaigns import campaign, trials
from tests.transactions.attempts import attempt_of
from tests.transactions.databases import UserDatabase
from tests.transactions.nurseries import Nursery
from tests.transactions.once_attempt import FIRST, LATER, STALE
from tests.transactions.user_connections import KINDS, SQLITE, path_of

PATIENCE_S = 45.0
TOGETHER_S = 0.01
"""How long the first of two attempts that race waits for the second."""
new_id = OrderedIds().new_id


@pytest.fixture
def ctx() -> Context:
    return attempt_of(new_id(), 1)


def later(ctx: Context, attempt: int = 2) -> Context:
    return attempt_of(ctx.id, attempt)


@pytest.fixture
def ready(database: UserDatabase) -> UserDatabase:
    """A database with the inbox and a ledger of effects."""
    with database.connect() as connection:
        Inbox().create_sync(connection)
        Inbox().create_sync(connection)  # It is there already.
        connection.execute("CREATE TABLE ledger (job_id text, attempt integer)")
        connection.commit()
    return database


# -- every kind of connection ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_an_effect_is_first_until_it_is_committed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, ctx: Context
) -> None:
    place = path_of(tmp_path) if kind in SQLITE else request.getfixturevalue("user_dsn")
    async with KINDS[kind](place) as opened:
        await Inbox().create(opened.connection)
        await opened.commit()
    for attempt, commit, expected in ((1, False, True), (2, True, True), (3, True, False), (4, False, False)):
        async with KINDS[kind](place) as opened:
            async with later(ctx, attempt).once(opened.connection) as first:
                assert first is expected
            await (opened.commit() if commit else opened.rollback())


@pytest.mark.parametrize("kind", KINDS)
async def test_sync_code_has_the_same_block(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, ctx: Context
) -> None:
    place = path_of(tmp_path) if kind in SQLITE else request.getfixturevalue("user_dsn")
    async with KINDS[kind](place) as opened:
        if opened.asynchronous:
            with pytest.raises(TypeError, match="is async"), ctx.once(opened.connection):
                pass
            await opened.rollback()
            return
        Inbox().create_sync(opened.connection)
        with ctx.once(opened.connection) as first:
            assert first
        with later(ctx).once(opened.connection) as first:
            assert not first
        await opened.rollback()


# -- what it guards against -----------------------------------------------------------------------


def test_effects_of_one_job_have_names(ready: UserDatabase, ctx: Context) -> None:
    with ready.connect() as connection:
        for name in ("charge", "mail", "ünï'"):
            with ctx.once(connection, name) as first:
                assert first
        with later(ctx).once(connection, "mail") as first:
            assert not first
        connection.commit()
    assert ready.count("penstock_inbox") == 3


def test_a_stale_attempt_is_refused_and_leaves_no_row(ready: UserDatabase, ctx: Context) -> None:
    with ready.connect() as connection:
        with later(ctx).once(connection, "charge") as first:
            assert first
        connection.commit()
        for name in ("charge", "mail"):
            with pytest.raises(AttemptStale, match="attempt 2 has committed"), ctx.once(connection, name):
                pytest.fail("it ran")
        connection.commit()
    assert ready.run("SELECT name, attempt FROM penstock_inbox") == [("charge", 2)]


def test_the_last_attempt_that_asked_is_recorded(ready: UserDatabase, ctx: Context) -> None:
    with ready.connect() as connection:
        for attempt in (1, 3):
            with later(ctx, attempt).once(connection):
                pass
        connection.commit()
        with pytest.raises(AttemptStale), later(ctx, 2).once(connection):
            pass


def test_an_error_that_is_caught_does_not_record_the_effect(ready: UserDatabase, ctx: Context) -> None:
    with ready.connect() as connection:
        with contextlib.suppress(ZeroDivisionError), ctx.once(connection) as first:
            assert first
            raise ZeroDivisionError
        connection.commit()
    assert ready.count("penstock_inbox") == 0


def test_an_error_of_the_database_says_to_roll_back(user_dsn: str, ctx: Context) -> None:
    with psycopg.connect(user_dsn) as connection:
        Inbox().create_sync(connection)
        connection.commit()
        with pytest.raises(psycopg.Error) as caught, ctx.once(connection):
            connection.execute("SELECT 1 FROM no_such_table")
        assert "roll back" in caught.value.__notes__[0]
        connection.rollback()


def test_a_connection_without_a_transaction_is_refused(user_dsn: str, tmp_path: Path, ctx: Context) -> None:
    with (
        psycopg.connect(user_dsn, autocommit=True) as connection,
        pytest.raises(NoTransaction, match="commits each statement"),
        ctx.once(connection),
    ):
        pass
    with (
        contextlib.closing(sqlite3.connect(path_of(tmp_path), isolation_level=None)) as other,
        pytest.raises(NoTransaction),
        ctx.once(other),
    ):
        pass


def test_a_missing_table_is_the_databases_own_error(database: UserDatabase, ctx: Context) -> None:
    with database.connect() as connection, pytest.raises(Exception, match="penstock_inbox"), ctx.once(connection):
        pass


@pytest.mark.parametrize("name", [None, 7, "x" * 151])
def test_a_name_that_does_not_fit_is_refused(name: object, ctx: Context) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ValueError, match="name"):
        ctx.once(connection, name)  # type: ignore[arg-type] # on purpose


# -- two attempts at once -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_a_second_attempt_waits_for_the_first_ones_transaction(user_dsn: str, ctx: Context, how: str) -> None:
    with psycopg.connect(user_dsn) as one, psycopg.connect(user_dsn) as watching:
        Inbox().create_sync(one)
        one.commit()
        watching.autocommit = True
        async with await psycopg.AsyncConnection.connect(user_dsn) as two:
            with ctx.once(one) as first:
                assert first
            second = asyncio.create_task(later(ctx).once(two).__aenter__())
            waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"
            async with asyncio.timeout(PATIENCE_S):
                while watching.execute(waiting).fetchone() == (0,):  # noqa: ASYNC110 - only the database knows
                    await asyncio.sleep(0.005)
            assert not second.done()
            (one.commit if how == "commit" else one.rollback)()
            assert await second is (how == "rollback")
            await two.rollback()


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_a_second_attempt_cannot_pass_the_first_on_sqlite(tmp_path: Path, ctx: Context, how: str) -> None:
    path = path_of(tmp_path)
    with (
        contextlib.closing(sqlite3.connect(path)) as one,
        contextlib.closing(sqlite3.connect(path, timeout=0)) as two,
    ):
        Inbox().create_sync(one)
        one.commit()
        with ctx.once(one) as first:
            assert first
        with pytest.raises(sqlite3.OperationalError, match="locked"), later(ctx).once(two):
            pytest.fail("it ran")
        two.rollback()
        (one.commit if how == "commit" else one.rollback)()
        with later(ctx).once(two) as first:
            assert first is (how == "rollback")
        two.rollback()


# -- kills ----------------------------------------------------------------------------------------


@pytest.mark.slow
@campaign
def test_killed_attempts_leave_one_effect(nursery: Nursery, ready: UserDatabase, record_property: object) -> None:
    kills = 0
    for _ in range(trials(25, share=25)):
        for place in ("begun", "recorded", "done", "committed"):
            job_id = new_id()
            assert nursery.run("attempt", ready.url, job_id, 1, place) == -signal.SIGKILL
            kills += 1
            assert nursery.run("attempt", ready.url, job_id, 2, "nowhere") == (LATER if place == "committed" else FIRST)
            assert ready.count("ledger", f"job_id = '{job_id}'") == 1
    record_property("evidence", f"{kills} kills, one effect each")  # type: ignore[operator] # pytest's own


@pytest.mark.slow
@campaign
def test_racing_attempts_leave_one_effect(
    nursery: Nursery, second_nursery: Nursery, ready: UserDatabase, record_property: object
) -> None:
    rounds = trials(40, share=20)
    for _ in range(rounds):
        job_id = new_id()
        racing = [nursery, second_nursery]
        go = time.monotonic() + TOGETHER_S
        for number, process in enumerate(racing, 1):
            process.start("attempt", ready.url, job_id, number, "nowhere", go)
        assert sorted(process.wait() for process in racing) in ([FIRST, LATER], [FIRST, STALE])
        assert ready.count("ledger", f"job_id = '{job_id}'") == 1
    record_property("evidence", f"{rounds} races, one effect each")  # type: ignore[operator] # as above


# -- in a task ------------------------------------------------------------------------------------


def test_a_task_that_fails_after_its_commit_does_not_repeat_its_effect(ready: UserDatabase) -> None:
    app = Penstock("memory:")
    said = []

    @app.task(name="charge", retry=Retry(attempts=3, backoff=0))
    def charge(order: int) -> None:
        ctx = current()
        with ready.connect() as connection:
            with ctx.once(connection) as first:
                said.append(first)
                if first:
                    connection.execute(f"INSERT INTO ledger VALUES ('{ctx.id}', {ctx.attempt})")
            connection.commit()
        if ctx.attempt < 3:
            raise ConnectionError

    with app.testing() as t:
        charge.enqueue_sync(17)
        t.run_all(raise_errors=False)
    assert said == [True, False, False]
    assert ready.count("ledger") == 1


# -- sweeping -------------------------------------------------------------------------------------


async def test_old_rows_are_swept_a_bounded_number_at_a_time(ready: UserDatabase) -> None:
    with ready.connect() as connection:
        for number in range(5):
            with attempt_of(f"job-{number}", 1).once(connection):
                pass
        connection.execute("UPDATE penstock_inbox SET done_at_ms = 1000 WHERE job_id <> 'job-4'")
        inbox = Inbox()
        assert inbox.sweep_sync(connection, "90d", limit=3) == 3
        assert await inbox.sweep(connection, "90d") == 1
        assert inbox.sweep_sync(connection, "90d") == 0
        with pytest.raises(ValueError, match="limit"):
            inbox.sweep_sync(connection, "90d", limit=1_001)
        connection.commit()
    assert ready.run("SELECT job_id FROM penstock_inbox") == [("job-4",)]
