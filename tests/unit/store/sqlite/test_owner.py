"""One process owns a store's file: a second one is refused, and a dead one is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.domain.errors import StoreInUse, StoreUnavailable
from penstock.store.ownership.owner import Owner
from tests.unit.store.sqlite.conftest import OpenStore

OPEN_AND_WAIT = """
import asyncio, sys
from penstock.store.opening import open_store

async def main() -> None:
    await open_store("sqlite:" + sys.argv[1])
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def start(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=20)
    return errors


async def test_a_second_process_is_refused_and_told_who_has_the_store(path: Path, open_store: OpenStore) -> None:
    await open_store()
    errors = end(start(path))
    assert "StoreInUse" in errors
    assert f"pid {os.getpid()}" in errors


async def test_a_process_that_was_killed_is_in_nobodys_way(path: Path, open_store: OpenStore) -> None:
    process = start(path)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    with pytest.raises(StoreInUse, match=f"pid {process.pid}"):
        await open_store()
    process.send_signal(signal.SIGKILL)
    end(process)
    await open_store()


async def test_the_same_process_does_not_open_a_store_twice(open_store: OpenStore) -> None:
    store = await open_store()
    with pytest.raises(StoreInUse):
        await open_store()
    await store.close()
    await open_store()


def test_a_folder_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        Owner.take(str(tmp_path / "missing" / "penstock.db"))
