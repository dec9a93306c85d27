"""The clients of the job API, in a process of their own (`python -m benchmarks.jobs.load`).

It reads what to do as lines of JSON, and answers each with one line. It ends with its input.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from benchmarks.errors import WorkFailed
from benchmarks.http_connection import Connection
from benchmarks.jobs.drain import drain
from benchmarks.jobs.program import Took
from benchmarks.jobs.requests import JobRequests, offers_of, refuse_failures
from benchmarks.jobs.service import Load
from benchmarks.process import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.http_connection import Dialogue
    from benchmarks.jobs.requests import Offer


class Supply:
    """Jobs that are left to be dealt with, shared by all connections."""

    def __init__(self, jobs: int) -> None:
        self.left = jobs

    def take(self, count: int) -> int:
        """Take up to so many."""
        taken = min(count, self.left)
        self.left -= taken
        return taken


class Enqueues:
    """Enqueue, again and again, until no jobs are left."""

    def __init__(self, requests: JobRequests, batch: int, supply: Supply) -> None:
        self._requests = requests
        self._batch = batch
        self._supply = supply

    def request(self) -> bytes | None:
        count = self._supply.take(self._batch)
        return self._requests.enqueue(count) if count else None

    def answered(self, answer: bytes) -> None:
        if self._batch > 1:
            refuse_failures(answer)


class Works:
    """Ask for jobs, accept them, run them, complete them; until all jobs were offered to somebody."""

    def __init__(self, requests: JobRequests, batch: int, supply: Supply) -> None:
        self._requests = requests
        self._batch = batch
        self._supply = supply
        self._offers: list[Offer] = []
        self._next: Callable[[], bytes | None] = self._dequeue

    @property
    def busy(self) -> bool:
        """Whether there are jobs in hand that are not completed."""
        return self._next != self._dequeue

    def request(self) -> bytes | None:
        return self._next()

    def answered(self, answer: bytes) -> None:
        if self._next == self._dequeue:
            self._offers = offers_of(answer)
            self._supply.take(len(self._offers))
            if self._offers:
                self._next = self._accept
            return
        if self._batch > 1:
            refuse_failures(answer)
        self._next = self._complete if self._next == self._accept else self._dequeue

    def _dequeue(self) -> bytes | None:
        return self._requests.dequeue(self._batch) if self._supply.left else None

    def _accept(self) -> bytes:
        return self._requests.accept([offer.token for offer in self._offers], batch=self._batch > 1)

    def _complete(self) -> bytes:
        results = [(offer.token, measured(offer.payload)) for offer in self._offers]
        return self._requests.complete(results, batch=self._batch > 1)


def measured(payload: str) -> int:
    """Do as little as a job can."""
    return len(payload)


class Polls:
    """Ask for jobs where there are none."""

    def __init__(self, requests: JobRequests, batch: int, supply: Supply) -> None:
        self._requests = requests
        self._batch = batch
        self._supply = supply

    def request(self) -> bytes | None:
        return self._requests.dequeue(self._batch) if self._supply.take(1) else None

    def answered(self, answer: bytes) -> None:
        if offers_of(answer):
            raise WorkFailed("a poll found a job where there was to be none")


_DIALOGUES: dict[str, type[Enqueues | Works | Polls]] = {"enqueue": Enqueues, "work": Works, "poll": Polls}


async def perform(load: Load) -> float:
    """Do what is asked on all connections at once, and return the seconds from the first request to the last answer."""
    if load.do == "drain":
        return await drain(load)
    supply, requests = Supply(load.jobs), JobRequests(load.port, load.queue, load.payload_bytes)
    kind = _DIALOGUES[load.do]
    connections = [
        Connection(_dialogue(kind(requests, load.batch, supply)), _not_again) for _ in range(load.connections)
    ]
    loop = asyncio.get_running_loop()
    try:
        for connection in connections:
            await loop.create_connection(lambda each=connection: each, "127.0.0.1", load.port)  # type: ignore[misc] # mypy does not see the type of a default.
        started_s = time.perf_counter()
        for connection in connections:
            connection.ask()
        ends = [connection.ended for connection in connections]
        done, pending = await asyncio.wait(ends, timeout=load.seconds_max, return_when=asyncio.FIRST_EXCEPTION)
        seconds = time.perf_counter() - started_s
        for end in done:
            end.result()
        if pending:
            raise WorkFailed(f"{load.jobs} jobs took more than {load.seconds_max:g} s")
    finally:
        for connection in connections:
            connection.end()
            # Those that failed failed together, and one of them was told.
            connection.ended.exception()
    return seconds


def _dialogue(dialogue: Dialogue) -> Dialogue:
    return dialogue


def _not_again(connection: Connection) -> None:
    connection.fail("the server closes a connection after each answer")


async def _serve() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            took = Took(seconds=await perform(msgspec.json.decode(line, type=Load)))
        except (WorkFailed, OSError) as failure:
            took = Took(failure=str(failure))
        sys.stdout.buffer.write(msgspec.json.encode(took) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    run(_serve())
