from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.support.urls import (
    name,
    opened,
    postgres_node,
    postgres_server,
    postgres_url,
    shared_file,
    sqlite_server,
)

__all__ = ["name", "opened", "postgres_node", "postgres_server", "postgres_url", "shared_file", "sqlite_server"]


@pytest.fixture
async def app(opened: Penstock) -> AsyncIterator[Penstock]:
    """An app of each kind of URL. Its tasks have names of the test's own."""
    async with opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def served(request: pytest.FixtureRequest) -> RunningServer:
    """A server process on each kind of store. Other tests use it, too."""
    server: RunningServer = request.getfixturevalue("sqlite_server" if request.param == "sqlite" else "postgres_node")
    return server
