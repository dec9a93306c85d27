"""`python -m benchmarks batches`: what a server spends on each job of a batch, and of a stream, before and after."""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Literal

import msgspec

from benchmarks.compare_postgres import some_server
from benchmarks.errors import BenchmarkFailed
from benchmarks.http_servers import penstock_server
from benchmarks.jobs.run import NO_POSTGRES, empty_stores
from benchmarks.jobs.service import Load, clients
from benchmarks.machine import describe_machine
from benchmarks.process import cpu_seconds_of
from benchmarks.scratch import temporary_folder
from benchmarks.store_run import utc_now

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.http_servers import Serving
    from benchmarks.jobs.program import Program
    from benchmarks.progress import Narrator

BATCH = 100
LOADS: dict[Literal["enqueue", "drain", "poll"], str] = {
    "enqueue": "enqueued in hundreds",
    "drain": "drained by a stream, reports in hundreds",
    "poll": "polls that find nothing",
}
BEFORE, AFTER = "before", "after"
_CONNECTIONS = {"enqueue": 2, "drain": 1, "poll": 8}
_WARM_UP = 500


class BatchesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    rounds: int = 7
    jobs: int = 5_000
    """In each round; and as many polls."""
    payload_bytes: int = 100
    postgres: bool = True


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Processor time of one server for each job or poll of one load, in each round."""

    store: str
    load: str
    server: str
    cpu_us: list[float]

    @property
    def median_us(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.cpu_us)


class BatchesReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    started_at: str
    machine: str
    plan: BatchesPlan
    spent: list[Spent]
    notes: list[str]

    def ratios(self) -> dict[tuple[str, str], float]:
        """By store and load, what the present server spends of what the one before did: the median over the rounds.

        Rounds in which the one before spent too little to be measured do not count.
        """
        known = {(each.store, each.load, each.server): each.cpu_us for each in self.spent}
        found: dict[tuple[str, str], float] = {}
        for (store, load, server), cpu_us in known.items():
            rounds = zip(cpu_us, known.get((store, load, BEFORE), []), strict=False) if server == AFTER else ()
            shares = [after / before for after, before in rounds if before]
            if shares:
                found[store, load] = statistics.median(shares)
        return found


class _Contestant:
    """One server and its clients."""

    def __init__(self, server: Serving, program: Program, plan: BatchesPlan) -> None:
        self._server = server
        self._program = program
        self._plan = plan

    async def spend(self, do: Literal["enqueue", "drain", "poll"], jobs: int) -> float:
        """Carry out a load, and return the microseconds of processor time for each of its jobs."""
        load = Load(
            do=do,
            port=self._server.port,
            queue="bench-empty" if do == "poll" else "bench-batches",
            jobs=jobs,
            batch=1 if do == "poll" else BATCH,
            connections=_CONNECTIONS[do],
            payload_bytes=self._plan.payload_bytes,
        )
        cpu_s = cpu_seconds_of(self._server.pid)
        await self._program.ask(load, seconds_max=load.seconds_max + 10)
        return round((cpu_seconds_of(self._server.pid) - cpu_s) * 1e6 / jobs, 1)


async def run_batches(
    plan: BatchesPlan, before: Path | None, postgres: str | None, narrator: Narrator
) -> BatchesReport:
    """Measure on temporary files and databases. `before` is a checkout of the project to compare this one with."""
    if before is not None and not (before / "src" / "penstock").is_dir():
        raise BenchmarkFailed(f"{before} is no checkout of the project: it has no src/penstock")
    started_at, notes = utc_now(), list[str]()
    with temporary_folder() as folder, ExitStack() as opened:
        database = opened.enter_context(some_server(postgres)) if plan.postgres else None
        if plan.postgres and database is None:
            notes.append(NO_POSTGRES)
        async with AsyncExitStack() as running:
            contestants: dict[tuple[str, str], _Contestant] = {}
            sources = {AFTER: None} if before is None else {BEFORE: before, AFTER: None}
            for server, source in sources.items():
                for store, url in (await empty_stores(database, folder, server, running)).items():
                    home = folder / f"{server}-{store}"
                    home.mkdir()
                    serving = running.enter_context(penstock_server(home, url, source=source))
                    program = await running.enter_async_context(clients(home, "clients"))
                    contestants[store, server] = _Contestant(serving, program, plan)
            narrator.say(f"{len(contestants)} servers, {plan.rounds} rounds in turn …")
            spent = await _take_turns(contestants, plan)
    return BatchesReport(
        started_at=started_at,
        machine=describe_machine(),
        plan=plan,
        spent=spent,
        notes=notes,
    )


async def _take_turns(contestants: dict[tuple[str, str], _Contestant], plan: BatchesPlan) -> list[Spent]:
    """Let each carry out each load in every round; who begins changes from round to round."""
    for contestant in contestants.values():
        for do in LOADS:
            await contestant.spend(do, _WARM_UP)
    spent: dict[tuple[str, str, str], list[float]] = {}
    names = list(contestants)
    for turn in range(plan.rounds):
        first = turn % len(names)
        for do, load in LOADS.items():
            for store, server in names[first:] + names[:first]:
                cpu_us = await contestants[store, server].spend(do, plan.jobs)
                spent.setdefault((store, load, server), []).append(cpu_us)
    return [
        Spent(store=store, load=load, server=server, cpu_us=cpu_us) for (store, load, server), cpu_us in spent.items()
    ]
