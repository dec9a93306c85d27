"""Files for the tests of the SQLite store, and stores opened on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import CountedIds
from penstock.domain.limits import Limits
from penstock.store.sqlite import SqliteStore
from penstock.testing import ManualClock

DEFAULT_LIMITS = Limits()


class OpenStore(Protocol):
    """Opens the test's file; called again after a close, it opens the same file once more."""

    async def __call__(self, *, limits: Limits = ...) -> SqliteStore: ...


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


@pytest.fixture
async def open_store(path: Path, clock: ManualClock) -> AsyncIterator[OpenStore]:
    opened: list[SqliteStore] = []

    async def opener(*, limits: Limits = DEFAULT_LIMITS) -> SqliteStore:
        store = await SqliteStore.open(str(path), clock=clock, ids=CountedIds(), limits=limits, failpoints=Failpoints())
        opened.append(store)
        return store

    yield opener
    for store in opened:
        await store.close()
