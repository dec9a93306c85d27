"""`python -m benchmarks library`: who takes part, in what order, and what is left out."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

from benchmarks.errors import BenchmarkFailed
from benchmarks.library.catalogue import entries
from benchmarks.library.findings import LibraryReport, Result
from benchmarks.library.ledger import Ledger, ledger_folder
from benchmarks.library.stage import Stage
from benchmarks.library.stores import database_server, store_of, versions
from benchmarks.library.visit import Visit, kill_a_worker
from benchmarks.machine import describe_machine
from benchmarks.scratch import temporary_folder
from benchmarks.store_run import utc_now

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.library.catalogue import Class, Entry
    from benchmarks.library.findings import Extent, Killed
    from benchmarks.progress import Narrator

_KILLS_AT_ONCE = 4


async def run_library(only: list[str] | None, kinds: list[Class], extent: Extent, narrator: Narrator) -> LibraryReport:
    """Measure on stores of this run. What cannot be fetched, started or measured is noted with its reason."""
    started_at = utc_now()
    with temporary_folder() as folder, ledger_folder() as ledgers, ExitStack() as serving:
        run = _Run(extent, narrator, folder, ledgers, serving)
        async with AsyncExitStack() as opened:
            await run.start(entries(only, kinds), opened)
            await run.take_turns()
            run.judge()
            await run.kill_workers()
    return LibraryReport(
        started_at=started_at,
        machine=describe_machine(),
        kinds=kinds,
        extent=extent,
        versions=versions(),
        results=[result for result in run.results.values() if result.rounds],
        notes=run.notes,
    )


class _Run:
    """The stages, and what was found on them."""

    def __init__(self, extent: Extent, narrator: Narrator, folder: Path, ledgers: Path, serving: ExitStack) -> None:
        self.results: dict[str, Result] = {}
        self.notes: list[str] = []
        self._stages: dict[str, Stage] = {}
        self._extent = extent
        self._narrator = narrator
        self._folder = folder
        self._ledgers = ledgers
        self._serving = serving
        self._database: str | None = None

    def _database_server(self) -> str:
        """Return the PostgreSQL that all share, each with a database of its own; start it for the first."""
        if self._database is None:
            self._database = self._serving.enter_context(database_server())
        return self._database

    async def start(self, wanted: list[Entry], opened: AsyncExitStack) -> None:
        """Start the stores. They run all the time; who is not measured does nothing."""
        for entry in wanted:
            self._narrator.say(f"Preparing {entry.name} …")
            folder = self._folder / entry.name
            folder.mkdir()
            try:
                store = await opened.enter_async_context(store_of(entry, folder, self._database_server))
                stage = Stage(entry, store, folder, Ledger(self._ledgers / entry.name))
            except (BenchmarkFailed, OSError) as failure:
                self._leave_out(entry, failure)
            else:
                self._stages[entry.name] = stage
                self.results[entry.name] = Result(library=entry.library.name, kind=entry.kind)

    async def take_turns(self) -> None:
        """Visit in rounds; who begins changes. Those that take part once are spread over the rounds."""
        everyone = self._extent.everyone
        always = [name for name, stage in self._stages.items() if everyone or stage.entry.library.each_round]
        once = [name for name in self._stages if name not in always]
        for turn in range(self._extent.rounds):
            first = turn % max(1, len(always))
            names = [*always[first:], *always[:first], *once[turn :: self._extent.rounds]]
            for name in names:
                if name in self._stages:
                    self._narrator.say(f"Round {turn + 1} of {self._extent.rounds}: {name} …")
                    await self._visit(name)

    async def _visit(self, name: str) -> None:
        stage = self._stages[name]
        visit = Visit(stage, self._extent)
        try:
            await visit.run()
        except (BenchmarkFailed, OSError) as failure:
            self._leave_out(stage.entry, failure)
            self.judge()
            del self._stages[name]
        else:
            self.results[name].rounds.append(visit.figures)

    def judge(self) -> None:
        """Count what was lost and what ran more than once, in all rounds."""
        for name, stage in self._stages.items():
            result = self.results[name]
            result.jobs = stage.jobs
            result.lost, result.doubled = stage.ledger.judge(range(stage.jobs))

    async def kill_workers(self) -> None:
        """Let every library lose a worker; several at a time, because the most of it is waiting."""
        self._narrator.say(f"Killing a worker of each, and waiting for {self._extent.kill_wait_seconds:g} s …")
        turns = asyncio.Semaphore(_KILLS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name, stage in self._stages.items():
                group.create_task(self._kill(name, stage, turns))

    async def _kill(self, name: str, stage: Stage, turns: asyncio.Semaphore) -> None:
        try:
            killed: Killed = await kill_a_worker(stage, self._extent, turns)
        except (BenchmarkFailed, OSError) as failure:
            self._leave_out(stage.entry, failure, "the run with a killed worker")
        else:
            self.results[name].killed = killed

    def _leave_out(self, entry: Entry, failure: Exception, what: str = "it") -> None:
        reason = str(failure).rstrip(".")
        note = f"{entry.library.title} ({entry.kind}): {what} was NOT measured to the end: {reason}."
        self._narrator.say(f"  {note}")
        self.notes.append(note)
