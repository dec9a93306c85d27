"""Sessions: what they make of a connection that is gone, and of a server's defaults."""

from __future__ import annotations

import pytest

from penstock.store.jobs.statements import Dialect, statements
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.pool import ConnectionLost, Session
from tests.support.job_steps import draft, enqueue, make_queue
from tests.support.postgres import PostgresServer


async def test_a_session_that_is_gone_when_it_is_to_listen_is_a_lost_connection(
    postgres_server: PostgresServer, database: str
) -> None:
    session = await Session.open(postgres_server.dsn(database))
    session.terminate()
    with pytest.raises(ConnectionLost):
        await session.listen("channel", lambda *_: None)


async def test_each_statement_sees_what_was_committed_before_it_whatever_the_servers_default(
    postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.psql(f"ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'")
    session = await Session.open(postgres_server.dsn(database))
    assert await session.fetchval("SELECT current_setting('transaction_isolation')") == "read committed"
    await session.close()


async def test_a_table_that_is_small_yet_is_not_read_as_a_whole_because_plans_outlive_that(
    store: PostgresStore, postgres_server: PostgresServer, database: str
) -> None:
    queue = await make_queue(store.jobs)
    await enqueue(store.jobs, queue, draft())
    postgres_server.psql("ANALYZE penstock.job", database)
    session = await Session.open(postgres_server.dsn(database))
    plan = await session.fetch(f"EXPLAIN {statements(Dialect.POSTGRES)['survey']}", queue.id, '["an id"]', 0)
    assert not [step for (step,) in plan if "Seq Scan on job " in step]
    await session.close()
