"""Where growth is measured: servers in a temporary folder, generators, and what is done to both."""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from benchmarks.errors import BenchmarkFailed, WorkFailed
from benchmarks.http_load import Job
from benchmarks.http_servers import penstock_server, with_queue

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from benchmarks.http_generator import Generator
    from benchmarks.http_load import Kind
    from benchmarks.http_servers import Serving
    from benchmarks.progress import Narrator
    from benchmarks.rounds import Contestant
    from benchmarks.scaling.findings import Scope

_MAKERS = 16
"""How many queues are made at once."""
_FILLERS = 16


class Place:
    """What all measurements of one run share."""

    def __init__(self, scope: Scope, folder: Path, generator: Generator, filler: Generator, narrator: Narrator) -> None:
        self.scope = scope
        self.generator = generator
        self.narrator = narrator
        self._filler = filler
        self._folder = folder
        self._numbers = itertools.count(1)

    def server(self, opened: AsyncExitStack, store: str | None = None) -> Serving:
        """Start a server of its own, on this store or on a new SQLite file."""
        folder = self._folder / f"server-{next(self._numbers)}"
        folder.mkdir()
        return opened.enter_context(penstock_server(folder, store))

    def queue_urls(self, serving: Serving, count: int) -> list[str]:
        """Make so many queues."""
        with ThreadPoolExecutor(_MAKERS) as makers:
            made = makers.map(lambda number: with_queue(serving, f"queue-{number}"), range(count))
            return [each.queue_url for each in made]

    async def fill(self, serving: Serving, messages: int) -> None:
        """Put so many messages into a queue."""
        job = msgspec.structs.replace(
            self.job(serving, kind="send", batch=10), connections=_FILLERS, seconds=self.scope.fill_seconds_max
        )
        rate = await self._filler.run(msgspec.structs.replace(job, messages=messages))
        if rate.messages < messages:
            raise BenchmarkFailed(f"only {rate.messages:,} of {messages:,} messages were taken in {rate.seconds:g} s")

    def job(self, serving: Serving, *, kind: Kind = "lifecycle", batch: int = 1, seconds: float | None = None) -> Job:
        """Return what is done to a queue unless told otherwise."""
        scope = self.scope
        return Job(
            port=serving.port,
            pid=serving.pid,
            queue_url=serving.queue_url,
            kind=kind,
            batch=batch,
            connections=scope.connections,
            body_bytes=scope.body_bytes,
            seconds=seconds or scope.seconds,
        )

    async def contestant(self, job: Job) -> Contestant:
        """Warm up with a job, and return who does it in turns."""
        with contextlib.suppress(WorkFailed):  # Very many connections may come to nothing in so short a time.
            await self.generator.run(msgspec.structs.replace(job, seconds=min(1.0, job.seconds)))
        return lambda: self.generator.run(job)
