"""Stores are opened by their URLs, and what is not one is refused before anything is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.domain.errors import StoreUrlInvalid
from penstock.store.opening import open_store
from tests.support.queues import make_queue, queue_name


async def test_a_sqlite_store_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where" / "penstock.db"
    store = await open_store(f"sqlite:{path}")
    queue = await make_queue(store)
    await store.close()
    store = await open_store(f"sqlite://{path}")
    assert await store.find_queue(queue_name("orders")) == queue
    await store.close()


async def test_a_store_in_memory_is_empty_every_time() -> None:
    for _ in range(2):
        store = await open_store("memory:")
        await make_queue(store)
        await store.close()


@pytest.mark.parametrize(
    "url",
    ["", "penstock.db", "sqlite:", "sqlite://host/penstock.db", "memory:here", "mysql://host/penstock", "postgresql:x"],
)
async def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(StoreUrlInvalid, match="A store is named as"):
        await open_store(url)


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUrlInvalid, match="names a folder"):
        await open_store(f"sqlite:{tmp_path}")


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUrlInvalid, match="cannot be made"):
        await open_store(f"sqlite:{tmp_path}/file/below/penstock.db")
