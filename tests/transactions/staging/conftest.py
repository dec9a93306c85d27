"""Databases that Penstock and the user share, and engines and connections on them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import asyncpg
import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job_limits import JobLimits
from penstock.engine.engine import Engine
from penstock.wire.jobs.staging import read_staged
from tests.support.postgres import PostgresServer
from tests.transactions.staging.steps import Connection

_template: dict[PostgresServer, str] = {}


class OpenEngine(Protocol):
    """Opens an engine on the test's database; it takes jobs in only when told so, unless it has upkeep."""

    async def __call__(
        self, *, upkeep: bool = ..., job_limits: JobLimits = ..., failpoints: Failpoints = ...
    ) -> Engine: ...


@pytest.fixture
async def database(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The name of a database that has Penstock's schema."""
    if postgres_server not in _template:
        empty = postgres_server.create_database()
        async with Engine.open(postgres_server.dsn(empty), upkeep=False):
            pass
        _template[postgres_server] = empty
    name = postgres_server.create_database(_template[postgres_server])
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
def dsn(postgres_server: PostgresServer, database: str) -> str:
    return postgres_server.dsn(database)


@pytest.fixture
async def open_engine(dsn: str) -> AsyncIterator[OpenEngine]:
    async with contextlib.AsyncExitStack() as stack:

        async def opened(
            *, upkeep: bool = False, job_limits: JobLimits | None = None, failpoints: Failpoints | None = None
        ) -> Engine:
            opening = Engine.open(
                dsn, upkeep=upkeep, job_limits=job_limits, failpoints=failpoints, read_staged=read_staged
            )
            return await stack.enter_async_context(opening)

        yield opened


@pytest.fixture
async def engine(open_engine: OpenEngine, failpoints: Failpoints) -> Engine:
    """An engine that does nothing by itself."""
    return await open_engine(failpoints=failpoints)


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[Connection]:
    """A connection of the user's."""
    opened = await asyncpg.connect(dsn)
    yield opened
    await opened.close()


@pytest.fixture
def role(postgres_server: PostgresServer, database: str) -> Iterator[str]:
    """A role of the user's that has no rights but to connect."""
    name = f"role_{database}".replace("-", "_")
    postgres_server.psql(f'CREATE ROLE "{name}" LOGIN', database)
    yield name
    postgres_server.psql(f'DROP OWNED BY "{name}" CASCADE; DROP ROLE "{name}"', database)
