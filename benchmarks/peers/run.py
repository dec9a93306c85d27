"""`python -m benchmarks peers`: starts every server that can be had, and has them take turns under each load."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchmarks.errors import BenchmarkFailed
from benchmarks.http_generator import some_generator
from benchmarks.machine import describe_machine
from benchmarks.peers.entrants import entered, fill, servers, warm_up
from benchmarks.peers.findings import BARE, Missing, PeersReport, Result, promises
from benchmarks.peers.loads import LOADS, measure
from benchmarks.process import loop_name
from benchmarks.scratch import temporary_folder
from benchmarks.store_run import utc_now

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.http_generator import Generator
    from benchmarks.http_servers import Serving
    from benchmarks.peers.entrants import Entrant
    from benchmarks.peers.findings import Memory, Scope
    from benchmarks.peers.loads import Load
    from benchmarks.progress import Narrator
    from benchmarks.timing import Rate

BARE_LOADS = {"send"}
"""All that the bare handler can do."""


async def run_peers(  # What, how much, where, and how it is told.
    names: list[str], loads: list[Load], scope: Scope, cache: Path, narrator: Narrator, *, own: bool = False
) -> PeersReport:
    """Measure these servers under these loads. What cannot be measured is told with its reason; the rest goes on."""
    started_at = utc_now()
    with temporary_folder() as folder:
        async with AsyncExitStack() as opened:
            generator = await opened.enter_async_context(some_generator(folder, own=own))
            filler = await opened.enter_async_context(some_generator(folder, own=True))
            contest = _Contest(names, scope, cache, narrator, generator, filler)
            plain = [load for load in loads if not load.on_backlog]
            if plain:
                await contest.measure_plain(plain, folder / "plain")
            if len(plain) < len(loads):
                await contest.measure_on_backlog([load for load in loads if load.on_backlog], folder / "backlog")
    return PeersReport(
        started_at=started_at,
        machine=describe_machine(),
        event_loop=loop_name(),
        generator=generator.name,
        scope=scope,
        servers=servers(names),
        results=contest.results,
        ratios=promises(contest.results),
        missing=contest.missing,
    )


class _Contest:
    """The servers, and what came of measuring them so far."""

    def __init__(  # It holds together what belongs to one run.
        self,
        names: list[str],
        scope: Scope,
        cache: Path,
        narrator: Narrator,
        generator: Generator,
        filler: Generator,
    ) -> None:
        self.results: list[Result] = []
        self.missing: list[Missing] = []
        self._names = names
        self._scope = scope
        self._cache = cache
        self._narrator = narrator
        self._generator = generator
        self._filler = filler

    async def measure_plain(self, loads: list[Load], folder: Path) -> None:
        """Measure loads on queues that were empty before."""
        async with AsyncExitStack() as opened:
            entrants = await self._start(opened, self._names, folder)
            for load in loads:
                able = [entrant for entrant in entrants if entrant.name != BARE or load.name in BARE_LOADS]
                self._narrator.say(f"{load.title}, {len(able)} servers in turn …")
                await self._take_turns(load, able, {})

    async def measure_on_backlog(self, loads: list[Load], folder: Path) -> None:
        """Fill fresh servers, note what memory that takes, and measure loads on the queues that were filled."""
        refused = {each.server for each in self.missing if each.load is None}
        names = [name for name in self._names if name != BARE and name not in refused]
        async with AsyncExitStack() as opened:
            entrants = await self._start(opened, names, folder)
            filled: dict[str, Serving] = {}
            for entrant in entrants:
                self._narrator.say(f"{self._scope.backlog:,} messages into {entrant.name} …")
                memory = await self._fill(entrant, filled, loads)
                if memory is not None and LOADS["memory"] in loads:
                    self.results.append(Result(server=entrant.name, load="memory", memory=memory))
            for load in loads:
                if load.kind is not None:
                    self._narrator.say(f"{load.title}, {len(filled)} servers in turn …")
                    await self._take_turns(load, [each for each in entrants if each.name in filled], filled)

    async def _start(self, opened: AsyncExitStack, names: list[str], folder: Path) -> list[Entrant]:
        entrants = []
        for name in names:
            self._narrator.say(f"Starting {name} …")
            try:
                entrant = opened.enter_context(entered(name, folder / name, self._cache, self._scope))
                await warm_up(entrant, self._generator, self._scope)
            except (BenchmarkFailed, OSError) as failure:
                self._miss(name, None, failure)
            else:
                entrants.append(entrant)
        return entrants

    async def _fill(self, entrant: Entrant, filled: dict[str, Serving], loads: list[Load]) -> Memory | None:
        try:
            queue = entrant.queue("backlog")
            memory = await fill(entrant, queue, self._filler, self._scope)
        except (BenchmarkFailed, OSError) as failure:
            for load in loads:
                self._miss(entrant.name, load.name, failure)
            return None
        filled[entrant.name] = queue
        return memory

    async def _take_turns(self, load: Load, entrants: list[Entrant], queues: dict[str, Serving]) -> None:
        """Let each run once in every round; who begins changes, and who fails is out."""
        rates: dict[str, list[Rate]] = {entrant.name: [] for entrant in entrants}
        for turn in range(self._scope.rounds):
            first = turn % max(1, len(entrants))
            for entrant in entrants[first:] + entrants[:first]:
                if entrant.name not in rates:
                    continue
                try:
                    rate = await self._measure(load, entrant, queues.get(entrant.name), turn)
                except (BenchmarkFailed, OSError) as failure:
                    del rates[entrant.name]
                    self._miss(entrant.name, load.name, failure)
                else:
                    rates[entrant.name].append(rate)
        self.results += [Result(server=name, load=load.name, rounds=each) for name, each in rates.items() if each]

    async def _measure(self, load: Load, entrant: Entrant, filled: Serving | None, turn: int) -> Rate:
        queue = filled or entrant.queue(f"{load.name}-{turn}", fifo=load.fifo)
        rate = await measure(load, entrant, queue, self._generator, self._scope)
        if filled is None:
            entrant.leave(queue)
        return rate

    def _miss(self, name: str, load: str | None, failure: Exception) -> None:
        self._narrator.say(f"  {name}{'' if load is None else f', {load}'}: {failure}")
        self.missing.append(Missing(server=name, load=load, reason=str(failure)))
