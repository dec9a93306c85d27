"""Benchmarks leave alone what is not theirs, and remove what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.errors import StoreNotOurs
from benchmarks.scratch import (
    ACCOUNT,
    REGION,
    ScratchQueues,
    folder_of,
    refuse_foreign_queues,
    temporary_folder,
    without_password,
)
from penstock.domain.queue import QueueAttributes, QueueName
from penstock.store.port import Store


@pytest.mark.parametrize("region", [REGION, "eu-central-1", "ap-southeast-2"])
@pytest.mark.parametrize("name", ["a-first-one", "orders", "bench", "benchmark", "zzz.fifo"])
async def test_a_store_with_somebodys_queue_is_refused(store: Store, region: str, name: str) -> None:
    await ScratchQueues().make(store, "earlier")
    await store.create_queue(QueueName(region, ACCOUNT, name), QueueAttributes(), {})
    with pytest.raises(StoreNotOurs, match=name):
        await refuse_foreign_queues(store)


async def test_a_store_with_queues_of_other_benchmarks_is_taken(store: Store) -> None:
    queues = ScratchQueues()
    await queues.make(store, "one")
    await queues.make(store, "another", fifo=True)
    await refuse_foreign_queues(store)


async def test_only_the_queues_that_were_made_are_deleted(store: Store) -> None:
    ours, theirs = ScratchQueues(), ScratchQueues()
    await ours.make(store, "one")
    await ours.make(store, "another", fifo=True)
    kept = await theirs.make(store, "one")
    assert await ours.delete(store, sweep=True)
    assert await store.list_queues(REGION, ACCOUNT, limit=10) == [kept]


def test_a_temporary_folder_goes_with_what_is_in_it() -> None:
    with temporary_folder() as folder:
        (folder / "file").write_text("text")
    assert not folder.exists()


def test_the_folder_of_a_store_is_known_for_files_only(tmp_path: Path) -> None:
    assert folder_of(f"sqlite:{tmp_path}/a.db") == tmp_path
    assert folder_of(f"sqlite:///{tmp_path}/a.db") == tmp_path
    assert folder_of(f"sqlite:{tmp_path}/not/yet/a.db") is None
    assert folder_of("memory:") is None
    assert folder_of(f"postgresql://host{tmp_path}") is None


def test_a_password_is_not_shown() -> None:
    assert without_password("postgresql://me:se:cret@host:5432/db?a=b") == "postgresql://me:***@host:5432/db?a=b"
    assert without_password("postgresql://me@host/db") == "postgresql://me@host/db"
    assert without_password("sqlite:/tmp/a:b@c.db") == "sqlite:/tmp/a:b@c.db"
