from __future__ import annotations

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
