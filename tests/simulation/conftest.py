"""What simulations run on: any number of empty places for a store, one after the other."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.simulation.profiles import DEEP, DEEP_ON_POSTGRES
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


@pytest.fixture
def deep(place: Place, request: pytest.FixtureRequest) -> settings:
    """How long the long lives are on the store that the place is for."""
    return DEEP_ON_POSTGRES if "postgres" in request.node.callspec.id else DEEP


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have `make evidence` run the long lives at full size."""
    for item in items:
        if "deep" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.campaign)
