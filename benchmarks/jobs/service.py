"""Penstock's job service as a system to be measured: a `penstock serve`, and a program that is its clients."""

from __future__ import annotations

import sys
import urllib.request
from typing import TYPE_CHECKING, Literal

import msgspec

from benchmarks.jobs.program import running

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from benchmarks.http_servers import Serving
    from benchmarks.jobs.program import Program

LOAD_SECONDS_MAX = 120.0
QUEUE = "bench-jobs"
_PUT_SECONDS_MAX = 20.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients do: enqueue jobs, work off jobs that wait, or poll an empty queue."""

    do: Literal["enqueue", "work", "drain", "poll"]
    """To `work` they poll; to `drain` they have a stream."""
    port: int
    queue: str
    jobs: int
    batch: int
    """How many jobs a request handles."""
    connections: int
    payload_bytes: int
    seconds_max: float = LOAD_SECONDS_MAX


class HttpSystem:
    """A server, with clients that handle a batch of jobs in each request; `beside` are processes that serve it."""

    def __init__(
        self, server: Serving, clients: Program, *, batch: int, connections: int, payload_bytes: int, beside: int | None
    ) -> None:
        self._clients = clients
        self._pids = [server.pid, clients.pid] + ([] if beside is None else [beside])
        self._load = Load(
            do="enqueue",
            port=server.port,
            queue=f"{QUEUE}-{batch}",
            jobs=0,
            batch=batch,
            connections=connections,
            payload_bytes=payload_bytes,
        )

    async def enqueue(self, jobs: int) -> float:
        """Enqueue so many jobs."""
        return await self._ask(msgspec.structs.replace(self._load, jobs=jobs))

    async def work(self, jobs: int) -> float:
        """Have so many offered, accepted, run and completed."""
        return await self._ask(msgspec.structs.replace(self._load, do="work", jobs=jobs))

    def pids(self) -> Sequence[int]:
        """All that take part."""
        return self._pids

    async def _ask(self, load: Load) -> float:
        return await self._clients.ask(load, seconds_max=load.seconds_max + 10)


def put_queue(server: Serving, name: str, settings: dict[str, object]) -> None:
    """Make a queue with these settings."""
    body = msgspec.json.encode({"settings": settings})
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/queues/{name}", data=body, method="PUT")
    with urllib.request.urlopen(request, timeout=_PUT_SECONDS_MAX) as answer:  # noqa: S310 - our own server
        answer.read()


def clients(folder: Path, name: str) -> AbstractAsyncContextManager[Program]:
    """Run the program that is the clients: producers and workers, at different times."""
    return running([sys.executable, "-m", "benchmarks.jobs.load"], folder, name)
