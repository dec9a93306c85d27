"""`store`: one store by itself, at a small backlog and at a large one, beside the log-only limit."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from benchmarks.log_limit import measure_log
from benchmarks.process import forget_peak_memory, loop_name, memory_bytes, peak_memory_bytes
from benchmarks.rounds import Ratio, Trial, ratio, take_turns
from benchmarks.scratch import ScratchQueues, folder_of, refuse_foreign_queues, temporary_folder, without_password
from benchmarks.timing import Budget, Rate
from benchmarks.workload import Phases, QueueLoad, Workload
from penstock.engine import Engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from benchmarks.progress import Narrator
    from benchmarks.rounds import Contestant
    from penstock.store.port import Store

SMALL_BACKLOG = 1_000
BACKLOG_RATIO_WANTED = 0.8
_WARM_UP_MESSAGES = 500
_LIFECYCLE = "lifecycle"
_LOG = "log only"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: so many messages in each measurement, and as many measurements of each lifecycle as rounds."""

    messages: int = 20_000
    backlog: int = 0
    rounds: int = 5
    workload: Workload = Workload()


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """What was found with a large backlog. A store in memory cannot be opened again."""

    messages: int
    fill_per_s: float
    reopen_ms: float | None
    memory_peak_bytes: int


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Memory is that of this process, which is not where a database server keeps its own."""

    store: str
    started_at: str
    event_loop: str
    plan: Plan
    open_ms: float
    phases: Phases
    lifecycles: list[Trial]
    ratios: list[Ratio]
    memory_start_bytes: int
    memory_peak_bytes: int
    backlog: Backlog | None
    swept: bool
    """False where the messages of the deleted queues are still being removed, by whoever sweeps the store."""


async def run_store(url: str | None, plan: Plan, narrator: Narrator) -> StoreReport:
    """Measure the store, or temporary SQLite files, and leave it without the queues that this took."""
    with temporary_folder() as folder:
        return await _StoreRun(url, plan, folder, narrator).report()


@contextlib.asynccontextmanager
async def open_timed(url: str) -> AsyncIterator[tuple[Store, float]]:
    """Open a store without background work, and say how many milliseconds that took."""
    started_s = time.perf_counter()
    async with Engine.open(url, upkeep=False) as engine:
        yield engine.store, round((time.perf_counter() - started_s) * 1000, 1)


def utc_now() -> str:
    """Tell the time as reports do."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class _Place:
    """A store that can be opened again, with the queues that were made in it."""

    store: Store

    def __init__(self, url: str) -> None:
        self.url = url
        self._queues = ScratchQueues()
        self._opened = contextlib.AsyncExitStack()

    async def open(self) -> float:
        """Open the store if it holds nobody else's queues, and say how many milliseconds that took."""
        open_ms = await self._open_timed()
        try:
            await refuse_foreign_queues(self.store)
        except BaseException:
            await self._opened.aclose()
            raise
        return open_ms

    async def reopen(self) -> float | None:
        """Open it once more, and say how long that took; None for a store that would not live through it."""
        if self.url == "memory:":
            return None
        await self._opened.aclose()
        return await self._open_timed()

    async def load(self, purpose: str, workload: Workload) -> QueueLoad:
        """Make a queue to work on."""
        return QueueLoad(self.store, await self._queues.make(self.store, purpose, fifo=workload.fifo), workload)

    async def close(self, *, sweep: bool) -> bool:
        """Delete the queues and close the store; False says that messages are left to be swept."""
        try:
            return await self._queues.delete(self.store, sweep=sweep)
        finally:
            await self._opened.aclose()

    async def _open_timed(self) -> float:
        self.store, open_ms = await self._opened.enter_async_context(open_timed(self.url))
        return open_ms


class _StoreRun:
    """One run, and what was measured so far.

    The large backlog has a temporary file to itself, so that large and small can take turns. In a store that was named
    it comes after the small one, which is then measured again beside it.
    """

    def __init__(self, url: str | None, plan: Plan, folder: Path, narrator: Narrator) -> None:
        self._place = _Place(url or f"sqlite:{folder / 'bench.db'}")
        self._large_place = self._place if url else _Place(f"sqlite:{folder / 'large.db'}")
        self._sweep = url is not None
        self._plan = plan
        self._folder = folder
        self._narrator = narrator
        self._trials: dict[str, Trial] = {}
        self._large = f"{_LIFECYCLE}, {plan.backlog:,} waiting"
        self._beside = f"{_LIFECYCLE} beside it"

    async def report(self) -> StoreReport:
        started_at, memory_start_bytes = utc_now(), memory_bytes()
        forget_peak_memory()
        open_ms = await self._place.open()
        try:
            phases = await self._measure_phases()
            small = await self._measure_small()
            memory_peak_bytes = peak_memory_bytes()
            backlog = await self._measure_large(small) if self._plan.backlog else None
        finally:
            self._narrator.say("Removing the queues …")
            swept = await self._place.close(sweep=self._sweep)
        return StoreReport(
            store=without_password(self._place.url),
            started_at=started_at,
            event_loop=loop_name(),
            plan=self._plan,
            open_ms=open_ms,
            phases=phases,
            lifecycles=list(self._trials.values()),
            ratios=self._ratios(),
            memory_start_bytes=memory_start_bytes,
            memory_peak_bytes=memory_peak_bytes,
            backlog=backlog,
            swept=swept,
        )

    async def _measure_phases(self) -> Phases:
        load = await self._place.load("phases", self._plan.workload)
        await load.phases(min(_WARM_UP_MESSAGES, self._plan.messages))
        self._narrator.say(f"Sending, receiving and deleting {self._plan.messages:,} messages …")
        return await load.phases(self._plan.messages)

    async def _measure_small(self) -> QueueLoad:
        load = await self._place.load("small", self._plan.workload)
        await load.fill(SMALL_BACKLOG)
        await load.lifecycle(Budget(messages=_WARM_UP_MESSAGES))
        self._narrator.say(f"Lifecycles at {SMALL_BACKLOG:,} waiting messages, and those of a log …")
        contestants = {_LIFECYCLE: self._lifecycle(load)}
        if self._place.url != "memory:":
            contestants[_LOG] = self._log_lifecycle
        self._trials |= await take_turns(contestants, self._plan.rounds)
        return load

    async def _measure_large(self, small: QueueLoad) -> Backlog:
        place, backlog = self._large_place, self._plan.backlog
        apart = place is not self._place
        if apart:
            await place.open()
        try:
            forget_peak_memory()
            load = await place.load("large", self._plan.workload)
            started_s = time.perf_counter()
            with self._narrator.counting(f"Filling a queue with {backlog:,} messages", backlog) as stored:
                await load.fill(backlog, stored)
            fill_per_s = round(backlog / (time.perf_counter() - started_s), 1)
            reopen_ms = await place.reopen()
            load, small = load.on(place.store), small.on(self._place.store)
            await load.lifecycle(Budget(messages=_WARM_UP_MESSAGES))
            self._narrator.say(f"Lifecycles at {backlog:,} and at {SMALL_BACKLOG:,} waiting messages …")
            contestants = {self._large: self._lifecycle(load), self._beside: self._lifecycle(small)}
            self._trials |= await take_turns(contestants, self._plan.rounds)
            memory_peak_bytes = peak_memory_bytes()
        finally:
            if apart:
                await place.close(sweep=False)
        return Backlog(
            messages=backlog, fill_per_s=fill_per_s, reopen_ms=reopen_ms, memory_peak_bytes=memory_peak_bytes
        )

    def _lifecycle(self, load: QueueLoad) -> Contestant:
        return lambda: load.lifecycle(Budget(messages=self._plan.messages))

    async def _log_lifecycle(self) -> Rate:
        # On the store's own disk, if that is known.
        folder = folder_of(self._place.url) or self._folder
        return await measure_log(folder, self._plan.workload, Budget(messages=self._plan.messages))

    def _ratios(self) -> list[Ratio]:
        trials, ratios = self._trials, []
        if _LOG in trials:
            ratios.append(ratio("lifecycle to log only", trials[_LIFECYCLE], trials[_LOG]))
        if self._large in trials:
            name = f"{self._plan.backlog:,} waiting to {SMALL_BACKLOG:,} waiting"
            small = trials[_LIFECYCLE if self._large_place is self._place else self._beside]
            ratios.append(ratio(name, trials[self._large], small, wanted=BACKLOG_RATIO_WANTED))
        return ratios
