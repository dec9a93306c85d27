"""The stores that the kit runs on. `-k sqlite` or `-k postgres` chooses one of them."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import Limits
from penstock.store.port import Store
from penstock.testing import CountedIds, ManualClock
from tests.support.campaigns import GATHERING_EVIDENCE
from tests.support.interleaving import Scene
from tests.support.postgres import PostgresServer
from tests.support.postgres_fixture import postgres_server
from tests.support.stores import Home, Opener, PostgresDatabase, Reopen, sqlite_at

__all__ = ["postgres_server"]

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where the system has one: no test here cuts the power, and it is several times as fast."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(params=["sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, folder: Path) -> Iterator[Opener]:
    """The place where this test's store is kept: a file, or a database."""
    if request.param == "sqlite":
        yield sqlite_at(folder / "penstock.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    database = PostgresDatabase(server)
    yield database
    database.drop()


@pytest.fixture
async def home(
    opener: Opener, clock: ManualClock, ids: CountedIds, limits: Limits, failpoints: Failpoints
) -> AsyncIterator[Home]:
    home = Home(opener, clock=clock, ids=ids, limits=limits, failpoints=failpoints)
    yield home
    await home.close()


@pytest.fixture
async def store(home: Home) -> Store:
    return await home.open()


@pytest.fixture
def scene(store: Store, failpoints: Failpoints, clock: ManualClock) -> Scene:
    return Scene(store, failpoints, clock)


@pytest.fixture
def reopen(home: Home, store: Store) -> Reopen:
    """Close the store and open it again, as a restart does."""

    async def reopen() -> Store:
        await home.close()
        return await home.open()

    return reopen


@pytest.fixture
def another_opener(request: pytest.FixtureRequest, opener: Opener, folder: Path) -> Iterator[Opener]:
    """Another place of the same kind, made from nothing."""
    if not isinstance(opener, PostgresDatabase):
        yield sqlite_at(folder / "another.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    database = PostgresDatabase(server, copied=False)
    yield database
    database.drop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most of the cases of large tables on PostgreSQL: what they are about happens above the store."""
    if GATHERING_EVIDENCE:
        return
    seen: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is None or not isinstance(item, pytest.Function) or item.callspec.params.get("opener") != "postgres":
            kept.append(item)
            continue
        place = seen[item.originalname]
        seen[item.originalname] += 1
        (left_out if place % sampled.args[0] else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
