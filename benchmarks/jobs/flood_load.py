"""The clients of a flood, in a process of their own (`python -m benchmarks.jobs.flood_load`).

It reads what to do as lines of JSON, and answers each with one line. It ends with its input.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter

import msgspec

from benchmarks.errors import WorkFailed
from benchmarks.http_connection import Connection
from benchmarks.jobs.load import Supply, Works
from benchmarks.jobs.program import Took
from benchmarks.jobs.requests import JobRequests
from benchmarks.process import run

JOBS_MAX = 10_000_000
WORKED_AT_ONCE = 10
_ACCEPTED = b"202"
_EXPECTED = (_ACCEPTED, b"429")
_REASON = re.compile(rb'"reason":"([a-z_]+)"')


class FloodLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Enqueue for so many seconds on so many connections; `per_second` is the pace of all together, None: no pace."""

    port: int
    queue: str
    seconds: float
    connections: int
    payload_bytes: int
    tenant: str = ""
    per_second: float | None = None
    worked_per_second: float = 0.0
    """How many jobs are worked off meanwhile."""
    unseen_s: float = 0.0
    """For how long nothing is noted, at the beginning, while the connections are opened all at once."""


class FloodTook(Took, frozen=True, kw_only=True):
    """What came of it: how long each enqueue took that was accepted, and how many others were refused, by reason.

    `seconds` are those in which that was noted.
    """

    accepted_ms: list[float] = msgspec.field(default_factory=list)
    refused: dict[str, int] = msgspec.field(default_factory=dict)


class Pace:
    """Instants at even distances, or none: then it is always time."""

    def __init__(self, every_s: float = 0.0, first_s: float = 0.0) -> None:
        self._every_s = every_s
        self._next_s = time.perf_counter() + first_s

    def next_in_s(self) -> float:
        """Go on to the next instant, and tell in how many seconds it is; below 0, it is over for so long."""
        if not self._every_s:
            return 0.0
        self._next_s += self._every_s
        return self._next_s - time.perf_counter()


class Enqueues:
    """Enqueues until the time is over, and notes what comes of it.

    A request that had to wait for the answer to the one before it counts from when it was due, or a server that is slow
    would be asked less just then. One that is sent late because this process was not woken in time counts from then.
    """

    def __init__(self, requests: JobRequests, seen_from_s: float, ends_s: float, pace: Pace) -> None:
        self._requests = requests
        self._seen_from_s = seen_from_s
        self._ends_s = ends_s
        self._pace = pace
        self._late_s = 0.0
        self._asked_s = 0.0
        self.accepted_ms: list[float] = []
        self.refused: Counter[str] = Counter()

    def next_in_s(self) -> float:
        next_in_s = self._pace.next_in_s()
        self._late_s = max(0.0, -next_in_s)
        return next_in_s

    def request(self) -> bytes | None:
        now_s = time.perf_counter()
        self._asked_s = now_s - self._late_s
        return self._requests.enqueue(1) if now_s < self._ends_s else None

    def answered(self, answer: bytes) -> None:
        status = answer[9:12]
        if status not in _EXPECTED:
            raise WorkFailed(f"the server answered: {answer[:300]!r}")
        if self._asked_s < self._seen_from_s:
            return
        if status == _ACCEPTED:
            self.accepted_ms.append((time.perf_counter() - self._asked_s) * 1e3)
        else:
            found = _REASON.search(answer)
            self.refused["" if found is None else found[1].decode()] += 1


class UntilThen:
    """Works jobs off until the time is over."""

    def __init__(self, works: Works, ends_s: float, pace: Pace) -> None:
        self._works = works
        self._ends_s = ends_s
        self._pace = pace

    def next_in_s(self) -> float:
        return self._pace.next_in_s()

    def request(self) -> bytes | None:
        return self._works.request() if time.perf_counter() < self._ends_s or self._works.busy else None

    def answered(self, answer: bytes) -> None:
        self._works.answered(answer)


class Paced(Connection):
    """A connection that asks when its dialogue says that it is time, and leaves it to that what a refusal means."""

    def __init__(self, dialogue: Enqueues | UntilThen) -> None:
        super().__init__(dialogue, _not_again)
        self._next_in_s = dialogue.next_in_s

    def ask(self) -> None:
        next_in_s = self._next_in_s()
        if next_in_s > 0:
            asyncio.get_running_loop().call_later(next_in_s, super().ask)
        else:
            super().ask()

    def _judge(self, answer: bytes, head_end: int) -> None:
        self._take(answer, head_end)


def _not_again(connection: Connection) -> None:
    connection.fail("the server closes a connection after each answer")


async def perform(load: FloodLoad) -> FloodTook:
    """Do what is asked on all connections at once."""
    started_s = time.perf_counter()
    seen_from_s, ends_s = started_s + load.unseen_s, started_s + load.seconds
    requests = JobRequests(load.port, load.queue, load.payload_bytes, load.tenant)
    every_s = 0.0 if load.per_second is None else load.connections / load.per_second
    enqueues = [
        Enqueues(requests, seen_from_s, ends_s, Pace(every_s, every_s * place / load.connections))
        for place in range(load.connections)
    ]
    connections = [Paced(each) for each in enqueues]
    if load.worked_per_second:
        # Each batch takes three requests: dequeue, accept and complete.
        pace = Pace(WORKED_AT_ONCE / load.worked_per_second / 3)
        connections.append(Paced(UntilThen(Works(requests, WORKED_AT_ONCE, Supply(JOBS_MAX)), ends_s, pace)))
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
        # Without those at the end, in which nothing is asked and the last refusals are waited for.
        seconds=ends_s - seen_from_s,
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
