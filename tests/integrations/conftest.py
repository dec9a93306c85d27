"""Apps whose tasks run in memory, by a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.client.tasks.testing import TaskTester
from tests.end_to_end.running import RunningServer
from tests.support.urls import name, opened, postgres_node, postgres_server, postgres_url, shared_file, sqlite_server

__all__ = ["name", "opened", "postgres_node", "postgres_server", "postgres_url", "shared_file", "sqlite_server"]


@pytest.fixture
def app() -> Penstock:
    return Penstock("memory:")


@pytest.fixture
def engine(app: Penstock) -> Iterator[TaskTester]:
    """The engine of the app's jobs."""
    with app.testing() as testing:
        yield testing


@pytest.fixture(params=["sqlite", "postgres"])
def served(request: pytest.FixtureRequest) -> RunningServer:
    """A server process on each kind of store. Other tests use it, too."""
    server: RunningServer = request.getfixturevalue("sqlite_server" if request.param == "sqlite" else "postgres_node")
    return server
