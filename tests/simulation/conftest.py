"""What simulations run on: any number of empty places for a store, one after the other."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer
from tests.support.postgres_fixture import postgres_server
from tests.support.stores import Opener, PostgresDatabase, sqlite_at

__all__ = ["postgres_server"]

Place = Callable[[], tuple[Opener, Callable[[], None]]]
"""Makes an empty place for a store, and what removes it again."""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        folders = (tmp_path / f"run-{number}" for number in itertools.count(1))

        def in_a_folder() -> tuple[Opener, Callable[[], None]]:
            folder = next(folders)
            folder.mkdir()
            return sqlite_at(folder / "penstock.db"), lambda: shutil.rmtree(folder)

        return in_a_folder

    server: PostgresServer = request.getfixturevalue("postgres_server")

    def in_a_database() -> tuple[Opener, Callable[[], None]]:
        database = PostgresDatabase(server)
        return database, database.drop

    return in_a_database
