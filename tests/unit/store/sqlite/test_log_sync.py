"""The log is synced by the kernel or by a thread, and either tells the event loop how it went."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.store.sqlite import log_sync as log_sync_module
from penstock.store.sqlite.log_sync import KernelSync, LogSync, ThreadSync, open_log_sync

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's asynchronous files are those of Linux")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 4_096)
    return path


@pytest.fixture
def pipe() -> Iterator[int]:
    """A file that cannot be synced."""
    reading, writing = os.pipe()
    yield writing
    os.close(reading)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def synced(sync: LogSync) -> OSError | None:
    end: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    sync.start(end.set_result)
    assert not end.done(), "it is told later, never within the call"
    return await end


@pytest.mark.parametrize("make", [pytest.param(KernelSync, marks=on_linux), ThreadSync])
async def test_a_file_is_synced_again_and_again(log: Path, make: Callable[[int], LogSync]) -> None:
    sync = make(os.open(log, os.O_RDWR))
    for _ in range(3):
        assert await synced(sync) is None
    sync.close()


@on_linux
async def test_the_kernel_does_it_where_it_can(log: Path) -> None:
    sync = open_log_sync(str(log))
    assert isinstance(sync, KernelSync)
    sync.close()


async def test_a_thread_does_it_where_the_kernel_does_not(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_sync_module, "_NUMBERS", {})
    sync = open_log_sync(str(log))
    assert isinstance(sync, ThreadSync)
    assert await synced(sync) is None
    sync.close()


@on_linux
async def test_a_kernel_that_refuses_says_so_at_once(pipe: int) -> None:
    before = open_files()
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        KernelSync(pipe)
    assert open_files() == before, "only the file that it was given is still open"
    os.close(pipe)


async def test_a_sync_that_fails_tells_why(pipe: int) -> None:
    sync = ThreadSync(pipe)
    failure = await synced(sync)
    assert failure is not None
    assert failure.errno == errno.EINVAL
    sync.close()


@on_linux
async def test_a_sync_that_fails_in_the_kernel_tells_why(log: Path, pipe: int) -> None:
    file = os.open(log, os.O_RDWR)
    sync = KernelSync(file)
    # The number is that of a file that cannot be synced now.
    os.dup2(pipe, file)
    failure = await synced(sync)
    assert failure is not None
    assert failure.errno == errno.EINVAL
    sync.close()
    os.close(pipe)
