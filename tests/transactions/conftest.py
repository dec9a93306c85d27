from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock import Outbox, Penstock
from tests.support.postgres import PostgresServer
from tests.support.urls import name, postgres_node, postgres_server, postgres_url, sqlite_server
from tests.transactions.databases import UserDatabase
from tests.transactions.nurseries import Nursery
from tests.transactions.shops import Shop, shop_of

__all__ = ["name", "postgres_node", "postgres_server", "postgres_url", "sqlite_server"]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Forks processes to kill."""
    with Nursery() as started:
        yield started


@pytest.fixture(scope="session")
def second_nursery() -> Iterator[Nursery]:
    """For two processes at once."""
    with Nursery() as started:
        yield started


@pytest.fixture
def user_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database of the user's own."""
    database = postgres_server.create_database()
    yield postgres_server.dsn(database)
    postgres_server.drop_database(database)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> UserDatabase:
    """A database of the user's own, of either kind."""
    if request.param == "sqlite":
        return UserDatabase.sqlite(tmp_path)
    return UserDatabase(request.getfixturevalue("user_dsn"))


@pytest.fixture
def filled(database: UserDatabase) -> UserDatabase:
    """A database with an empty outbox."""
    with database.connect() as connection:
        Outbox().create_sync(connection)
        connection.commit()
    return database


@pytest.fixture
async def shop(name: str) -> AsyncIterator[Shop]:
    """An app on an engine in this process."""
    async with Penstock("memory:") as app:
        yield shop_of(app, name)
