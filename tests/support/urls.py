"""Clients of every kind of URL that `Penstock` takes, as fixtures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.support.postgres_fixture import postgres_server

__all__ = [
    "name",
    "opened",
    "postgres_node",
    "postgres_server",
    "postgres_url",
    "shared_file",
    "sqlite_server",
]

KINDS = ["memory", "sqlite", "sqlite-thread", "unix", "postgres-in-process", "http-sqlite", "http-postgres"]


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


@pytest.fixture(scope="session")
def shared_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file that all tests share, with one client that keeps its owner from ending between two of them."""
    path = tmp_path_factory.mktemp("embedded") / "jobs.db"
    with Penstock.embedded(path) as keeper:
        keeper.sync.queues.list()
        yield path


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Penstock:
    """A client of each kind, for a test with names of its own."""
    kind: str = request.param
    if kind == "memory":
        return Penstock("memory:", timeout=20)
    if kind == "sqlite":
        return Penstock(f"sqlite:{request.getfixturevalue('shared_file')}", timeout=20)
    if kind == "sqlite-thread":
        return Penstock.embedded(tmp_path / "own.db", owner="thread", timeout=20)
    if kind == "unix":
        return Penstock(f"unix:{request.getfixturevalue('shared_file')}.sock", timeout=20)
    if kind == "http-sqlite":
        return Penstock(request.getfixturevalue("sqlite_server").url, timeout=20)
    node = request.getfixturevalue("postgres_node")
    return Penstock(node.url if kind == "http-postgres" else request.getfixturevalue("postgres_url"), timeout=20)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of a test's own, for a queue or a schedule."""
    return f"q-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}"
