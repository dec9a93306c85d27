"""Celery and RQ as systems to be measured, each on a Redis of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarks.errors import ServerUnavailable
from benchmarks.http_servers import free_port, started
from benchmarks.jobs.program import running
from benchmarks.peers.fetching import PythonPackages, default_cache, fetch
from benchmarks.process import processes_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from benchmarks.http_servers import Serving
    from benchmarks.jobs.program import Program

PACKAGES = PythonPackages(name="celery-rq", version="5.7.0-2.12.0", requirements=["celery[redis]==5.7.0", "rq==2.12.0"])
CALLERS = 8
"""Threads that enqueue: with more, both get slower."""

WORK_SECONDS_MAX = 120.0

_PEER = Path(__file__).with_name("redis_peers") / "peer.py"
_DURABLE = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]

PeerName = Literal["celery", "rq"]


def find_redis() -> str:
    """Return the program, or raise `ServerUnavailable`."""
    program = shutil.which("redis-server")
    if program is None:
        raise ServerUnavailable("redis-server is not on the PATH")
    return program


def find_peers() -> Path:
    """Return the Python that has Celery and RQ, installing them into the cache if need be."""
    return fetch(PACKAGES, default_cache()) / "bin" / "python"


class RedisHost:
    """One Redis, workers and a producer. The workers stand still while jobs are enqueued."""

    def __init__(self, redis: Serving, workers: Serving, producer: Program) -> None:
        self.pids = [redis.pid, workers.pid, producer.pid]
        self._workers = workers
        self._producer = producer
        self._completed = 0

    async def enqueue(self, jobs: int, *, batch: int, payload_bytes: int) -> float:
        """Enqueue so many jobs, from several threads."""
        asked = {"do": "enqueue", "jobs": jobs, "batch": batch, "callers": CALLERS, "payload_bytes": payload_bytes}
        with self._standing_still():
            return await self._producer.ask(asked, seconds_max=WORK_SECONDS_MAX)

    async def work(self, jobs: int) -> float:
        """Wait until so many more are completed."""
        self._completed += jobs
        asked = {"do": "wait", "completed": self._completed, "seconds_max": WORK_SECONDS_MAX}
        return await self._producer.ask(asked, seconds_max=WORK_SECONDS_MAX + 10)

    @contextlib.contextmanager
    def _standing_still(self) -> Iterator[None]:
        pids = processes_of(self._workers.pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


class RedisSystem:
    """A host that gets its jobs in batches of one size."""

    def __init__(self, host: RedisHost, batch: int, payload_bytes: int) -> None:
        self._host = host
        self._batch = batch
        self._payload_bytes = payload_bytes

    async def enqueue(self, jobs: int) -> float:
        """Enqueue so many jobs."""
        return await self._host.enqueue(jobs, batch=self._batch, payload_bytes=self._payload_bytes)

    async def work(self, jobs: int) -> float:
        """Have them run."""
        return await self._host.work(jobs)

    def pids(self) -> Sequence[int]:
        """All that take part."""
        return self._host.pids


@contextlib.contextmanager
def redis_server(program: str, folder: Path, *, durable: bool) -> Iterator[Serving]:
    """Run Redis on loopback, as it comes, or so that every write is on disk before it is answered."""
    port = free_port()
    command = [program, "--bind", "127.0.0.1", "--dir", str(folder), "--logfile", str(folder / "redis.log")]
    if durable:
        command += _DURABLE
    with started([*command, "--port", str(port)], folder, port=port) as serving:
        yield serving


@asynccontextmanager
async def redis_host(peer: PeerName, python: Path, folder: Path, *, durable: bool) -> AsyncIterator[RedisHost]:
    """Run one peer, with a Redis of its own, in a new folder of this folder."""
    home = folder / f"{peer}-{'durable' if durable else 'plain'}"
    home.mkdir()
    with (
        redis_server(find_redis(), home, durable=durable) as redis,
        started([str(python), str(_PEER), peer, "work", str(redis.port)], home) as workers,
    ):
        async with running([str(python), str(_PEER), peer, "produce", str(redis.port)], home, "produce") as producer:
            yield RedisHost(redis, workers, producer)
