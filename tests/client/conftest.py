from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from tests.client.faces import face_of
from tests.end_to_end.running import RunningServer
from tests.support.postgres_fixture import postgres_server

__all__ = ["postgres_server"]

KINDS = ["memory", "postgres-in-process", "http-sqlite", "http-postgres"]


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    server = request.getfixturevalue("postgres_server")
    database = server.create_database()
    yield server.dsn(database)
    server.drop_database(database)


@pytest.fixture(scope="session")
def sqlite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    with RunningServer(folder, "--port", "0", "--store", f"sqlite:{folder / 'penstock.db'}") as running:
        yield running


@pytest.fixture(scope="session")
def postgres_node(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server on the database that clients in this process use, too: it does the upkeep for them."""
    with RunningServer(tmp_path_factory.mktemp("node"), "--port", "0", "--store", postgres_url) as running:
        yield running


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL of each kind, for a test with names of its own."""
    kind: str = request.param
    if kind == "memory":
        return "memory:"
    if kind == "http-sqlite":
        return str(request.getfixturevalue("sqlite_server").url)
    node = request.getfixturevalue("postgres_node")
    return str(node.url if kind == "http-postgres" else request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["async", "sync"])
async def app(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Any]:
    """A client by its async or its sync methods, both of which a test awaits."""
    async with Penstock(url, timeout=20) as opened:
        yield face_of(opened, request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of a test's own, for a queue or a schedule."""
    return f"q-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}"
