"""What a user's role needs to enqueue, and what it cannot do with that."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from penstock.engine.engine import Engine
from tests.support.postgres import PostgresServer
from tests.transactions.staging.steps import Connection, jobs_of, stage, take

GRANTS = """
GRANT USAGE ON SCHEMA penstock TO "{role}";
GRANT EXECUTE ON FUNCTION penstock.enqueue_v1(text, text, jsonb, jsonb), penstock.enqueue_jobs_v1(json) TO "{role}";
"""
"""As docs/transactions.md has them."""


@pytest.fixture
async def users(dsn: str, role: str) -> AsyncIterator[Connection]:
    """A connection of a role that is not Penstock's."""
    opened = await asyncpg.connect(dsn, user=role)
    yield opened
    await opened.close()


async def test_nobody_enqueues_without_the_right_to(users: Connection, connection: Connection, role: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="schema penstock"):
        await stage(users)
    await connection.execute(f'GRANT USAGE ON SCHEMA penstock TO "{role}"')
    for call in ("enqueue_v1('q', 't')", "enqueue_jobs_v1('[]')", "stage_job('{}')", "new_job_id()"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for function"):
            await users.execute(f"SELECT penstock.{call}")


async def test_two_grants_are_enough_and_open_no_table(
    users: Connection, connection: Connection, role: str, engine: Engine
) -> None:
    await connection.execute(GRANTS.format(role=role))
    job_id = await stage(users, 1)
    await users.execute("SELECT penstock.enqueue_jobs_v1($1)", '[{"queue": "mail", "task": "t"}]')
    for statement in (
        "SELECT * FROM penstock.staged_job",
        "DELETE FROM penstock.staged_job",
        "INSERT INTO penstock.staged_job (id, queue, request, staged_at) VALUES ('', '', '', 0)",
        "SELECT * FROM penstock.job",
        "SELECT secret FROM penstock.store",
        "SELECT penstock.stage_job('{}')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await users.execute(statement)
    await take(engine)
    first, _ = await jobs_of(engine)
    assert first.id == job_id


async def test_grants_outlive_a_migration(users: Connection, connection: Connection, role: str, dsn: str) -> None:
    """Functions are replaced then, not made anew."""
    await connection.execute(GRANTS.format(role=role))
    await connection.execute("DELETE FROM penstock.migration WHERE number = 18; DROP TABLE penstock.staged_job")
    async with Engine.open(dsn, upkeep=False):
        pass
    assert await stage(users)


async def test_names_of_the_callers_own_do_not_come_before_ours(
    users: Connection, connection: Connection, role: str, postgres_server: PostgresServer, database: str
) -> None:
    """The functions run with Penstock's rights, so what they call must not be what a caller has put in the way."""
    await connection.execute(GRANTS.format(role=role))
    postgres_server.psql(f'GRANT CREATE ON DATABASE "{database}" TO "{role}"', database)
    await users.execute(
        """
        CREATE SCHEMA mine;
        CREATE FUNCTION mine.json_typeof(json) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'mine'; END $$;
        CREATE FUNCTION mine.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'mine'; END $$;
        CREATE FUNCTION mine.coalesced(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'mine'; END $$;
        CREATE OPERATOR mine.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.coalesced);
        CREATE TEMP TABLE staged_job (id text);
        SET search_path = mine, pg_temp, pg_catalog;
        """
    )
    assert await users.fetchval("SELECT penstock.enqueue_v1('mail', 'greet')")
    assert await connection.fetchval("SELECT count(*) FROM penstock.staged_job") == 1
