"""A library with its store, its ledger and the numbers of its jobs: what producers and workers are started on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Literal

from benchmarks.errors import ServerUnavailable, WorkFailed
from benchmarks.http_servers import started
from benchmarks.jobs.program import Took, running
from benchmarks.library.catalogue import peer_packages, river_program
from benchmarks.peers.fetching import default_cache, fetch
from benchmarks.process import processes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from pathlib import Path

    from benchmarks.http_servers import Serving
    from benchmarks.jobs.program import Program
    from benchmarks.library.catalogue import Entry, Library, Task
    from benchmarks.library.ledger import Effect, Ledger
    from benchmarks.library.stores import Store

Way = Literal["one", "callers", "hundreds"]

ASK_SECONDS_MAX = 90.0
"""How long a producer may take for one thing."""
RUN_SECONDS_MAX = 60.0
"""How long jobs may take to be run, however many there are."""

_POLL_SECONDS = 0.005
_SETTLE_SECONDS = 0.2


class Enqueued(Took, frozen=True, kw_only=True):
    """What a producer did."""

    count: int


def command_of(library: Library) -> list[str]:
    """Return how a library's program is called, after fetching what it needs; or raise `ServerUnavailable`."""
    if not library.python:
        return [str(_fetched("river") / "program")]
    module = ["-m", "benchmarks.library.programs.program", library.module]
    if library.ours:
        return [sys.executable, *module]
    return [str(_fetched("peers") / "bin" / "python"), *module]


def _fetched(what: Literal["peers", "river"]) -> Path:
    tried = _try_to_fetch(what)
    if isinstance(tried, str):
        raise ServerUnavailable(tried)
    return tried


@functools.cache  # Tried once: without a network every attempt takes long.
def _try_to_fetch(what: Literal["peers", "river"]) -> Path | str:
    """Return where it is, or why it is not there."""
    try:
        return fetch(peer_packages() if what == "peers" else river_program(), default_cache())
    except ServerUnavailable as error:
        return str(error)


class Stage:
    """One entry of the comparison."""

    def __init__(self, entry: Entry, store: Store, folder: Path, ledger: Ledger) -> None:
        self.entry = entry
        self.store = store
        self.ledger = ledger
        self.jobs = 0
        """How many were enqueued so far; they are numbered in this order, from 0."""
        self.rate = 0.0
        """How many jobs one worker drains in a second, as far as it is known."""
        self.fastest_way: Way = "hundreds"
        """How to enqueue what is not measured."""
        self._folder = folder
        self._command = command_of(entry.library)
        self._workers = 0

    def producer(self) -> AbstractAsyncContextManager[Program]:
        """Run a producer."""
        return running(self._side("produce", 0, "producer"), self._folder, "producer")

    def worker(self, slots: int) -> AbstractContextManager[Serving]:
        """Run a worker with this many slots; with 0, in the way that is fastest for tasks that take no time."""
        self._workers += 1
        return started(self._side("work", slots, f"worker-{self._workers}"), self._folder)

    def _side(self, side: str, slots: int, name: str) -> list[str]:
        return [*self._command, side, self.store.address, self.entry.kind, str(slots), str(self.ledger.path), name]

    async def prepare(self, producer: Program) -> None:
        """Wait until a producer has made what the store needs, such as tables."""
        await self.enqueue(producer, "one", count=0)

    async def enqueue(
        self,
        producer: Program,
        way: Way,
        *,
        count: int,
        seconds: float | None = None,
        task: Task = "noop",
        argument: int = 0,
    ) -> Enqueued:
        """Enqueue this many jobs, or as many of them as fit into this time."""
        asked = {
            "do": "enqueue",
            "way": way,
            "task": task,
            "argument": argument,
            "first": self.jobs,
            "count_max": count,
            "seconds": seconds or 0,
        }
        return await self._ask(producer, asked)

    async def pace(self, producer: Program, *, count: int, per_s: int) -> Enqueued:
        """Enqueue this many stamps at this rate."""
        return await self._ask(producer, {"do": "pace", "first": self.jobs, "count": count, "per_s": per_s})

    async def _ask(self, producer: Program, asked: Mapping[str, object]) -> Enqueued:
        done = await producer.ask_for(Enqueued, asked, seconds_max=ASK_SECONDS_MAX)
        self.jobs += done.count
        return done

    async def finish(self, first: int, start: int, seconds_max: float = RUN_SECONDS_MAX) -> list[Effect]:
        """Wait until all jobs from number `first` on have run. Return the effects, of those from record `start` on."""
        ends_s = time.monotonic() + seconds_max
        missing = set(range(first, self.jobs))
        effects: list[Effect] = []
        while missing:
            if len(self.ledger) - start - len(effects) >= len(missing):
                more = self.ledger.since(start + len(effects))
                missing.difference_update(effect.number for effect in more)
                effects += more
            elif time.monotonic() > ends_s:
                missing.difference_update(effect.number for effect in self.ledger.since(start))
                count = self.jobs - first
                raise WorkFailed(f"{len(missing):,} of {count:,} jobs were not run within {seconds_max:g} s")
            else:
                await asyncio.sleep(_POLL_SECONDS)
        return [effect for effect in effects if effect.number >= first]


async def settle() -> None:
    """Give workers time for what a ledger does not show: to get going, or to acknowledge what they ran."""
    await asyncio.sleep(_SETTLE_SECONDS)


@contextlib.contextmanager
def standing_still(workers: list[Serving]) -> Iterator[None]:
    """Stop workers while their jobs are enqueued, so that they neither take part in that nor begin before its end."""
    pids = [pid for worker in workers for pid in processes_of(worker.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
