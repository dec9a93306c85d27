from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.embedded import EmbeddedFile
from tests.support.postgres_fixture import postgres_server

__all__ = ["postgres_server"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder to play a page in. The owner of the file that pages use is ended with it."""
    file = EmbeddedFile(tmp_path / "jobs.db")
    yield tmp_path
    file.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty store. Pages say `sqlite:jobs.db`."""
    if request.param == "sqlite":
        yield "sqlite:jobs.db"
        return
    server = request.getfixturevalue("postgres_server")
    database = server.create_database()
    yield server.dsn(database)
    server.drop_database(database)
