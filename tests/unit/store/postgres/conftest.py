"""Databases of their own for the tests of the PostgreSQL store, and nodes on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import pytest

from penstock.domain.clock import Clock, SystemClock
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import Limits
from penstock.store.postgres import PostgresStore
from tests.support.postgres import PostgresServer
from tests.support.postgres_fixture import postgres_server
from tests.support.standby import Standby

__all__ = ["postgres_server"]


class OpenNode(Protocol):
    """Opens a node on the test's database; time flows unless a clock is given."""

    async def __call__(
        self, *, clock: Clock = ..., limits: Limits = ..., failpoints: Failpoints = ...
    ) -> PostgresStore: ...


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of an empty database."""
    name = postgres_server.create_database()
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
async def open_node(postgres_server: PostgresServer, database: str) -> AsyncIterator[OpenNode]:
    opened: list[PostgresStore] = []

    async def open_node(
        *, clock: Clock | None = None, limits: Limits | None = None, failpoints: Failpoints | None = None
    ) -> PostgresStore:
        node = await PostgresStore.open(
            postgres_server.dsn(database),
            clock=SystemClock() if clock is None else clock,
            ids=OrderedIds(),
            limits=Limits() if limits is None else limits,
            failpoints=Failpoints() if failpoints is None else failpoints,
        )
        opened.append(node)
        return node

    yield open_node
    for node in opened:
        await node.close()


@pytest.fixture
async def store(open_node: OpenNode, failpoints: Failpoints) -> PostgresStore:
    return await open_node(failpoints=failpoints)


@pytest.fixture
def standby(postgres_server: PostgresServer, database: str) -> Iterator[Standby]:
    standby = Standby(postgres_server, database)
    yield standby
    standby.is_needed_no_longer()
