from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.running import RunningServer
from tests.support.postgres_fixture import postgres_server

__all__ = ["postgres_server"]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store of each kind, made when it is opened first."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'queues' / 'penstock.db'}"
        return
    server = request.getfixturevalue("postgres_server")
    database = server.create_database()
    yield server.dsn(database)
    server.drop_database(database)


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def shared_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server process on a store of each kind for all tests that stop no server, each with queues of its own."""
    folder = tmp_path_factory.mktemp("shared")
    if request.param == "sqlite":
        with RunningServer(folder, "--port", "0", "--store", f"sqlite:{folder / 'penstock.db'}") as running:
            yield running
        return
    postgres = request.getfixturevalue("postgres_server")
    database = postgres.create_database()
    with RunningServer(folder, "--port", "0", "--store", postgres.dsn(database)) as running:
        yield running
    postgres.drop_database(database)


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    """A name of a test's own: what it is called, and a digest of where it is and which of its cases it is."""
    case = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]
    return f"{request.node.originalname[:60]}-{case}"


@pytest.fixture
def server(store_url: str, tmp_path: Path) -> Iterator[RunningServer]:
    """A server process on a store of each kind."""
    with RunningServer(tmp_path, "--port", "0", "--store", store_url) as running:
        yield running


@pytest.fixture
def passing_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server process that keeps everything in memory."""
    with RunningServer(tmp_path, "--port", "0", "--store", "memory:") as running:
        yield running
