"""Ownership of a database file, as the store and its tools see it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.errors import StoreInUse, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import CountedIds
from penstock.domain.limits import Limits
from penstock.store.ownership.host import NETWORK_FILE_SYSTEMS, boot_id, check_file_system, file_system_type
from penstock.store.ownership.owner import Owner
from penstock.store.ownership.record import read_record
from penstock.store.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


async def open_store(path: Path) -> SqliteStore:
    return await SqliteStore.open(
        str(path), clock=SystemClock(), ids=CountedIds(), limits=Limits(), failpoints=Failpoints()
    )


def replace(path: Path) -> None:
    """Move a file away and put another in its place."""
    path.rename(path.with_name("moved.db"))
    path.touch()


async def test_each_owner_has_a_number_of_its_own(path: Path) -> None:
    for number in (1, 2, 3):
        owner = Owner.take(str(path))
        owner.prepare(socket=str(path) + ".sock")
        store = await open_store(path)
        assert owner.number == number
        await store.close()


async def test_a_file_that_exists_keeps_its_mode(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT, 0o640))
    store = await open_store(path)
    assert {stat.S_IMODE(place.stat().st_mode) for place in path.parent.iterdir()} == {0o640}
    await store.close()


async def test_an_owner_that_has_a_socket_is_ready_only_once_that_is_there(path: Path) -> None:
    owner = Owner.take(str(path))
    owner.prepare(socket=str(path) + ".sock")
    store = await open_store(path)
    lock = os.open(f"{path}.lock", os.O_RDONLY)
    try:
        record = read_record(lock)
        assert record is not None
        assert (record.state, record.socket, record.boot) == ("starting", "jobs.db.sock", boot_id())
        owner.note_ready()
        record = read_record(lock)
        assert record is not None
        assert record.state == "ready"
        await store.close()
        assert read_record(lock) is None
    finally:
        os.close(lock)


async def test_the_same_process_does_not_open_a_file_by_a_second_name(path: Path) -> None:
    store = await open_store(path)
    link = path.with_name("link.db")
    link.hardlink_to(path)
    with pytest.raises(StoreInUse):
        await open_store(link)
    await store.ping()
    await store.close()


async def test_the_log_of_a_file_that_took_our_name_is_left_alone(path: Path) -> None:
    store = await open_store(path)
    replace(path)
    log = path.with_name("jobs.db-wal")
    assert log.exists()
    await store.close()
    assert log.exists()


async def test_an_owner_is_in_trouble_if_its_file_is_gone_or_its_log_cannot_be_written(path: Path) -> None:
    owner = Owner.take(str(path))
    owner.prepare(socket=str(path) + ".sock")
    store = await open_store(path)
    assert owner.trouble() is None
    owner.store_failure = lambda: OSError(errno.EIO, "Input/output error")
    assert "Input/output error" in str(owner.trouble())
    replace(path)
    assert "names another file" in str(owner.trouble())
    await store.close()


@pytest.mark.parametrize("kind", NETWORK_FILE_SYSTEMS)
def test_network_file_systems_are_refused(kind: int) -> None:
    with pytest.raises(StoreUnavailable, match="network file system"):
        check_file_system("/data/jobs.db", kind)


def test_the_type_of_a_file_system_is_found(tmp_path: Path) -> None:
    assert file_system_type("/proc") == 0x9FA0
    check_file_system(str(tmp_path), file_system_type(str(tmp_path)))
