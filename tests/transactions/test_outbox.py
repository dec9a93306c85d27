from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Outbox, Penstock, Relay
from penstock.client.errors import ArgumentsInvalid, NoTransaction, OutboxInvalid, TaskInvalid
from penstock.domain.clock import SystemClock
from tests.transactions.databases import UserDatabase
from tests.transactions.shops import Shop, shop_of
from tests.transactions.user_connections import KINDS, SQLITE, path_of


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Penstock("memory:") as app:
        yield shop_of(app, "orders")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_row_is_committed_and_rolled_back_with_the_users_transaction(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, shop: Shop
) -> None:
    place = path_of(tmp_path) if kind in SQLITE else request.getfixturevalue("user_dsn")
    database = UserDatabase(f"sqlite:{place}" if kind in SQLITE else place)
    outbox = Outbox()
    async with KINDS[kind](place) as opened:
        await outbox.create(opened.connection)
        await opened.commit()
    async with KINDS[kind](place) as opened:
        await outbox.add(opened.connection, shop.confirm.call(1))
        await opened.rollback()
    async with KINDS[kind](place) as opened:
        job = await outbox.add(opened.connection, shop.confirm.call(2))
        assert await outbox.waiting(opened.connection) == 1
        assert await outbox.refused(opened.connection) == []
        assert not await outbox.retry(opened.connection, job.id)
        assert not await outbox.discard(opened.connection, job.id)
        if opened.asynchronous:
            with pytest.raises(TypeError, match="is async"):
                outbox.add_sync(opened.connection, shop.confirm.call(3))
        else:
            outbox.add_many_sync(opened.connection, [])
        await opened.commit()
    assert database.run("SELECT id, queue FROM penstock_outbox") == [(job.id, "orders")]
    assert await Relay(shop.app, database.url).drain() == 0
    assert await shop.ids() == [job.id]
    assert (await shop.app.jobs.get(job.id)).task == "confirm"


def test_a_table_that_is_there_stays_as_it_is(filled: UserDatabase, shop: Shop) -> None:
    with filled.connect() as connection:
        Outbox().add_sync(connection, shop.confirm.call(1))
        Outbox().create_sync(connection)
        connection.commit()
    assert filled.count("penstock_outbox") == 1


def test_a_row_holds_the_whole_request(filled: UserDatabase, shop: Shop) -> None:
    before_ms = SystemClock().wall_ms()
    with filled.connect() as connection:
        call = shop.confirm.opts(queue="mail", delay=60, priority=9, tenant="t", tags=["ünï"], unique="u").call(17)
        job = Outbox().add_sync(connection, call)
        connection.commit()
    ((job_id, queue, written),) = filled.run("SELECT id, queue, request FROM penstock_outbox")
    request = json.loads(written)
    assert (job_id, queue) == (job.id, "mail")
    assert before_ms + 60_000 <= request.pop("run_at_ms") <= SystemClock().wall_ms() + 60_000
    assert request == {
        "id": job.id,
        "queue": "mail",
        "task": "confirm",
        "payload": {"order": 17},
        "priority": 9,
        "tenant": "t",
        "tags": ["ünï"],
        "unique_key": "u",
    }


def test_all_calls_are_checked_before_the_first_is_added(filled: UserDatabase, shop: Shop) -> None:
    outbox = Outbox()
    with filled.connect() as connection:
        bad: Any
        for bad in (shop.confirm, "confirm", None):
            with pytest.raises(TaskInvalid, match=r"task\.call"):
                outbox.add_many_sync(connection, [shop.confirm.call(1), bad])
        with pytest.raises(TaskInvalid, match="cannot be enqueued with tx="):
            outbox.add_many_sync(connection, [shop.confirm.call(1), shop.confirm.opts(tx=connection).call(2)])
        with pytest.raises(ArgumentsInvalid):
            outbox.add_sync(connection, shop.confirm.call("x"))  # type: ignore[arg-type] # on purpose
        with pytest.raises(OutboxInvalid, match="1,000 at most"):
            outbox.add_many_sync(connection, [shop.confirm.call(1)] * 1_001)
        connection.commit()
    assert filled.count("penstock_outbox") == 0


def test_a_job_that_is_too_large_is_refused(filled: UserDatabase, shop: Shop) -> None:
    @shop.app.task(name="store")
    def store(text: str) -> None: ...

    with filled.connect() as connection:
        with pytest.raises(OutboxInvalid, match="1,200,000 at most"):
            Outbox().add_many_sync(connection, [store.call("small"), store.call("x" * 1_200_000)])
        connection.commit()
    assert filled.count("penstock_outbox") == 0


def test_a_connection_that_commits_by_itself_is_refused(user_dsn: str, tmp_path: Path, shop: Shop) -> None:
    with psycopg.connect(user_dsn, autocommit=True) as connection:
        Outbox().create_sync(connection)
        with pytest.raises(NoTransaction, match="Begin a transaction first"):
            Outbox().add_sync(connection, shop.confirm.call(1))
        with connection.transaction():
            Outbox().add_sync(connection, shop.confirm.call(1))
    with (
        contextlib.closing(sqlite3.connect(path_of(tmp_path), isolation_level=None)) as other,
        pytest.raises(NoTransaction),
    ):
        asyncio.run(Outbox().add(other, shop.confirm.call(1)))


def test_a_missing_table_is_the_databases_own_error(database: UserDatabase, shop: Shop) -> None:
    with database.connect() as connection, pytest.raises(Exception, match="penstock_outbox"):
        Outbox().add_sync(connection, shop.confirm.call(1))


def test_anything_but_a_connection_is_refused(shop: Shop) -> None:
    with pytest.raises(TypeError, match="Expected a connection"):
        Outbox().add_sync("sqlite:user.db", shop.confirm.call(1))


def test_statements_are_there_for_migrations() -> None:
    outbox: Any = Outbox()
    for dialect in ("postgresql", "sqlite", "mysql"):
        assert "penstock_outbox" in outbox.statements(dialect)[0]
    with pytest.raises(TypeError, match="known for postgresql, sqlite, mysql"):
        outbox.statements("other")


def test_the_package_loads_none_of_it_until_it_is_asked_for() -> None:
    program = (
        "import sys, penstock; from penstock import Inbox, Outbox; import penstock.client.transactions.outbox; "
        "print([name for name in sys.modules if name.partition('.')[0] in "
        "('asyncpg', 'psycopg', 'sqlalchemy', 'django', 'sqlite3') or name.startswith('penstock.server')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
