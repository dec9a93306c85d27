from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.tasks.chaos.ledger import make_table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the ledger and the fenced table are."""
    make_table(tmp_path)
    return tmp_path


@pytest.fixture
def client(served: RunningServer) -> Iterator[Penstock]:
    with Penstock(served.url) as app:
        yield app


@pytest.fixture(params=["http-sqlite", "http-postgres", "sqlite", "unix"])
def shared(request: pytest.FixtureRequest) -> Iterator[Penstock]:
    """A client of each kind of URL under which processes share a store through a server or an owner."""
    if request.param.startswith("http"):
        server = request.getfixturevalue("sqlite_server" if request.param == "http-sqlite" else "postgres_node")
        url = server.url
    else:
        file = request.getfixturevalue("shared_file")
        url = f"sqlite:{file}" if request.param == "sqlite" else f"unix:{file}.sock"
    with Penstock(url) as app:
        yield app
