"""The clients of a flood, in a process of their own (`python -m penstock.bench.jobs.flood_load`).

It reads what to do as lines of JSON, and answers each with one line. It ends with its input.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from penstock.bench.errors import WorkFailed
from penstock.bench.http_connection import Connection
from penstock.bench.jobs.load import Supply, Works
from penstock.bench.jobs.program import Took
from penstock.bench.jobs.requests import JobRequests
from penstock.bench.process import run

if TYPE_CHECKING:
    from penstock.bench.http_connection import Dialogue

JOBS_MAX = 10_000_000
WORKED_AT_ONCE = 10
_REASON = re.compile(rb'"reason":"([a-z_]+)"')


class FloodLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Enqueue for so many seconds on so many connections; `per_second` is the pace of all together, None: no pace."""

    port: int
    queue: str
    seconds: float
    connections: int
    payload_bytes: int
    per_second: float | None = None
    worked_per_second: float = 0.0
    """How many jobs are worked off meanwhile."""


class FloodTook(Took, frozen=True, kw_only=True):
    """What came of it: how long each enqueue took that was accepted, and how many others were refused, by reason."""

    accepted_ms: list[float] = msgspec.field(default_factory=list)
    refused: dict[str, int] = msgspec.field(default_factory=dict)


class Enqueues:
    """Enqueues until the time is over, and notes what comes of it."""

    def __init__(self, requests: JobRequests, ends_s: float) -> None:
        self._requests = requests
        self._ends_s = ends_s
        self._asked_s = 0.0
        self.accepted_ms: list[float] = []
        self.refused: Counter[str] = Counter()

    def request(self) -> bytes | None:
        self._asked_s = time.perf_counter()
        return self._requests.enqueue(1) if self._asked_s < self._ends_s else None

    def answered(self, answer: bytes) -> None:
        status = answer[9:12]
        if status == b"202":
            self.accepted_ms.append((time.perf_counter() - self._asked_s) * 1e3)
        elif status == b"429":
            found = _REASON.search(answer)
            self.refused["" if found is None else found[1].decode()] += 1
        else:
            raise WorkFailed(f"the server answered: {answer[:300]!r}")


class UntilThen:
    """Works jobs off until the time is over."""

    def __init__(self, works: Works, ends_s: float) -> None:
        self._works = works
        self._ends_s = ends_s

    def request(self) -> bytes | None:
        return self._works.request() if time.perf_counter() < self._ends_s or self._works.busy else None

    def answered(self, answer: bytes) -> None:
        self._works.answered(answer)


class Paced(Connection):
    """A connection that asks at even distances, if told, and leaves it to the dialogue what a refusal means."""

    def __init__(self, dialogue: Dialogue, *, every_s: float = 0.0, first_s: float = 0.0) -> None:
        super().__init__(dialogue, _not_again)
        self._every_s = every_s
        self._next_s = asyncio.get_running_loop().time() + first_s

    def ask(self) -> None:
        loop = asyncio.get_running_loop()
        if self._every_s:
            # A server that is slow is not asked more quickly afterwards.
            self._next_s = max(self._next_s + self._every_s, loop.time())
            loop.call_at(self._next_s, super().ask)
        else:
            super().ask()

    def _judge(self, answer: bytes, head_end: int) -> None:
        self._take(answer, head_end)


def _not_again(connection: Connection) -> None:
    connection.fail("the server closes a connection after each answer")


async def perform(load: FloodLoad) -> FloodTook:
    """Do what is asked on all connections at once."""
    started_s = time.perf_counter()
    ends_s = started_s + load.seconds
    requests = JobRequests(load.port, load.queue, load.payload_bytes)
    every_s = 0.0 if load.per_second is None else load.connections / load.per_second
    enqueues = [Enqueues(requests, ends_s) for _ in range(load.connections)]
    connections = [
        Paced(each, every_s=every_s, first_s=every_s * place / load.connections) for place, each in enumerate(enqueues)
    ]
    if load.worked_per_second:
        works = UntilThen(Works(requests, WORKED_AT_ONCE, Supply(JOBS_MAX)), ends_s)
        # Each batch takes three requests: dequeue, accept and complete.
        connections.append(Paced(works, every_s=WORKED_AT_ONCE / load.worked_per_second / 3))
    loop = asyncio.get_running_loop()
    try:
        for connection in connections:
            await loop.create_connection(lambda each=connection: each, "127.0.0.1", load.port)  # type: ignore[misc] # mypy does not see the type of a default.
        for connection in connections:
            connection.ask()
        await asyncio.gather(*(connection.ended for connection in connections))
    finally:
        for connection in connections:
            connection.end()
            # Those that failed failed together, and one of them was told.
            connection.ended.exception()
    refused: Counter[str] = Counter()
    for each in enqueues:
        refused.update(each.refused)
    return FloodTook(
        seconds=time.perf_counter() - started_s,
        accepted_ms=[taken for each in enqueues for taken in each.accepted_ms],
        refused=dict(refused),
    )


async def _serve() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            took = await perform(msgspec.json.decode(line, type=FloodLoad))
        except (WorkFailed, OSError) as failure:
            took = FloodTook(failure=str(failure))
        sys.stdout.buffer.write(msgspec.json.encode(took) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    run(_serve())
