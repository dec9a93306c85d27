"""`python -m benchmarks flood`: enqueueing far above what a queue takes, and how those fare whose jobs it does take."""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import msgspec

from benchmarks.compare_postgres import some_server
from benchmarks.errors import WorkFailed
from benchmarks.http_servers import penstock_server
from benchmarks.jobs.flood_load import FloodLoad, FloodTook
from benchmarks.jobs.program import running
from benchmarks.jobs.run import NO_POSTGRES, empty_stores
from benchmarks.jobs.service import put_queue
from benchmarks.machine import describe_machine
from benchmarks.process import cpu_seconds_of, memory_bytes_of
from benchmarks.scratch import temporary_folder
from benchmarks.store_run import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.http_servers import Serving
    from benchmarks.jobs.program import Program
    from benchmarks.progress import Narrator

P99_RATIO_MAX = 2.0
"""How many times as long as unloaded an accepted enqueue may take in a flood."""

_UNLOADED = 0.95
"""What comes without a flood, as a share of what the queue takes, so that nothing is refused."""
_UNLOADED_CONNECTIONS = 8
_STEADY_CONNECTIONS = 16
_DEPTH_MAX = 500
_LEAD_S = 0.5
"""How long a flood goes on before anything is measured."""
_WARM_UP_SECONDS = 1.0
_MEMORY_EVERY_S = 0.1
_LATE_S = 30.0


class FloodPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    rounds: int = 40
    seconds: float = 1.0
    """Short turns, so that whatever else the machine does falls on both alike."""
    connections: int = 256
    per_second: int = 100
    """How many jobs the queue takes: by its rate, or because so many are worked off."""
    steady_per_second: int = 300
    """How many enqueues are measured: those of a client beside, all of which are accepted."""
    payload_bytes: int = 1024
    postgres: bool = True


class FloodTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One queue on one store: enqueues that were accepted, without a flood and in one, and what the flood was like.

    The percentiles are those of all rounds together.
    """

    name: str
    calm_p50_ms: float
    calm_p99_ms: float
    calm_samples: int
    flood_p50_ms: float
    flood_p99_ms: float
    flood_samples: int
    p99_ratios: list[float]
    """By round."""
    own_p99_ms: float
    """Of those that the flooded queue took in the flood, as the flood's own clients saw it."""
    own_calm_p99_ms: float
    """Of those that it took before, on the same clients."""
    own_samples: int
    accepted_per_s: float
    """By the flooded queue."""
    refused_per_s: float
    refused: dict[str, int]
    """By reason."""
    calm_cpu_share: float
    flood_cpu_share: float
    """Processor time of the server, as a share of one core."""
    memory_before_bytes: int
    memory_peak_bytes: int
    calm_grown_bytes: int
    flood_grown_bytes: int
    """By how much the server grew in all rounds. A store that caches what it stores grows in both, up to its limit."""

    @property
    def p99_ratio(self) -> float:
        """Of all rounds together."""
        return self.flood_p99_ms / self.calm_p99_ms

    @property
    def p50_ratio(self) -> float:
        """Of all rounds together."""
        return self.flood_p50_ms / self.calm_p50_ms

    @property
    def times_accepted(self) -> float:
        """How many times as much came as the queue took."""
        return (self.accepted_per_s + self.refused_per_s) / self.accepted_per_s


class FloodReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and what was left out."""

    started_at: str
    machine: str
    plan: FloodPlan
    trials: list[FloodTrial]
    notes: list[str]


async def run_flood(plan: FloodPlan, postgres: str | None, narrator: Narrator) -> FloodReport:
    """Measure on temporary files and databases."""
    started_at, notes, trials = utc_now(), list[str](), list[FloodTrial]()
    with temporary_folder() as folder, ExitStack() as opened:
        server = opened.enter_context(some_server(postgres)) if plan.postgres else None
        if plan.postgres and server is None:
            notes.append(NO_POSTGRES)
        async with AsyncExitStack() as stores:
            for store, url in (await empty_stores(server, folder, "flooded", stores)).items():
                home = folder / store
                home.mkdir()
                narrator.say(f"Flooding a server on {store} …")
                trials += await _flood_store(plan, store, url, home)
    return FloodReport(started_at=started_at, machine=describe_machine(), plan=plan, trials=trials, notes=notes)


async def _flood_store(plan: FloodPlan, store: str, url: str, home: Path) -> list[FloodTrial]:
    limited = {"rate": {"per_second": plan.per_second, "burst": max(1, plan.per_second // 10)}, "depth_max": 10**9}
    command = [sys.executable, "-m", "benchmarks.jobs.flood_load"]
    # What is measured is in a process of its own: a flood's clients have their hands full, and see answers late.
    async with running(command, home, "steady") as steady, running(command, home, "flood") as many:
        with penstock_server(home, url) as server:
            put_queue(server, "limited", limited)
            put_queue(server, "bounded", {"depth_max": _DEPTH_MAX})
            put_queue(server, "beside", {"depth_max": 10**9})
            return [
                await _Flood(plan, server, steady, many, "limited").measure(f"{store}, limited in rate"),
                await _Flood(plan, server, steady, many, "bounded").measure(f"{store}, bounded in depth"),
            ]


class _Phase(msgspec.Struct, frozen=True):
    """Some seconds: the steady client, the clients of the queue that is flooded, the server."""

    steady: FloodTook
    many: FloodTook
    cpu_share: float
    memory_grown_bytes: int
    memory_peak_bytes: int


class _Flood:
    """One queue, in turns without and with a flood; and a steady client of another queue, which is the same in both."""

    def __init__(self, plan: FloodPlan, server: Serving, steady: Program, many: Program, queue: str) -> None:
        self._plan = plan
        self._server = server
        self._clients = (steady, many)
        self._steady = FloodLoad(
            port=server.port,
            queue="beside",
            seconds=plan.seconds,
            connections=_STEADY_CONNECTIONS,
            payload_bytes=plan.payload_bytes,
            per_second=plan.steady_per_second,
        )
        self._calm = FloodLoad(
            port=server.port,
            queue=queue,
            seconds=plan.seconds + _LEAD_S,
            unseen_s=_LEAD_S,
            connections=_UNLOADED_CONNECTIONS,
            payload_bytes=plan.payload_bytes,
            per_second=plan.per_second * _UNLOADED,
            worked_per_second=plan.per_second,
        )
        self._wild = msgspec.structs.replace(self._calm, connections=plan.connections, per_second=None)

    async def measure(self, name: str) -> FloodTrial:
        for load in (self._calm, self._wild):
            await self._run(load, _WARM_UP_SECONDS)
        before_bytes = memory_bytes_of(self._server.pid)
        calm, wild = list[_Phase](), list[_Phase]()
        for _ in range(self._plan.rounds):
            calm.append(await self._run(self._calm, self._plan.seconds))
            wild.append(await self._run(self._wild, self._plan.seconds))
        return _summed_up(name, calm, wild, before_bytes)

    async def _run(self, load: FloodLoad, seconds: float) -> _Phase:
        """Have the steady client measured while others do this."""
        steady, many = self._clients
        steadily = msgspec.structs.replace(self._steady, seconds=seconds)
        load = msgspec.structs.replace(load, seconds=seconds + _LEAD_S)
        pid = self._server.pid
        others = asyncio.create_task(many.ask_for(FloodTook, load, seconds_max=load.seconds + _LATE_S))
        watching = asyncio.create_task(_peak_memory(pid))
        try:
            await asyncio.sleep(_LEAD_S)
            cpu_s, grown_bytes = -cpu_seconds_of(pid), -memory_bytes_of(pid)
            took = await steady.ask_for(FloodTook, steadily, seconds_max=seconds + _LATE_S)
            cpu_s, grown_bytes = cpu_s + cpu_seconds_of(pid), grown_bytes + memory_bytes_of(pid)
            if took.refused:
                raise WorkFailed(f"enqueues to a queue that is not flooded were refused: {took.refused}")
            return _Phase(took, await others, cpu_s / took.seconds, grown_bytes, await _ended(watching))
        finally:
            others.cancel()
            watching.cancel()
            await asyncio.wait([others, watching])


async def _ended(watching: asyncio.Task[int]) -> int:
    watching.cancel()
    return await watching


async def _peak_memory(pid: int) -> int:
    """Look at a process's memory until cancelled, and return the most that was seen."""
    most_bytes = 0
    try:
        while True:
            most_bytes = max(most_bytes, memory_bytes_of(pid))
            await asyncio.sleep(_MEMORY_EVERY_S)
    except asyncio.CancelledError:
        return most_bytes


def _summed_up(name: str, calm: list[_Phase], wild: list[_Phase], before_bytes: int) -> FloodTrial:
    refused: Counter[str] = Counter()
    for phase in wild:
        refused.update(phase.many.refused)
    seconds = sum(phase.many.seconds for phase in wild)
    all_calm, all_wild = _together(phase.steady for phase in calm), _together(phase.steady for phase in wild)
    own_calm, own = _together(phase.many for phase in calm), _together(phase.many for phase in wild)
    return FloodTrial(
        name=name,
        calm_p50_ms=_percentile(all_calm, 50),
        calm_p99_ms=_percentile(all_calm, 99),
        calm_samples=len(all_calm),
        flood_p50_ms=_percentile(all_wild, 50),
        flood_p99_ms=_percentile(all_wild, 99),
        flood_samples=len(all_wild),
        p99_ratios=[
            round(_percentile(loud.steady.accepted_ms, 99) / _percentile(quiet.steady.accepted_ms, 99), 2)
            for quiet, loud in zip(calm, wild, strict=True)
        ],
        own_p99_ms=_percentile(own, 99),
        own_calm_p99_ms=_percentile(own_calm, 99),
        own_samples=len(own),
        accepted_per_s=round(len(own) / seconds, 1),
        refused_per_s=round(refused.total() / seconds, 1),
        refused=dict(refused),
        calm_cpu_share=round(statistics.mean(phase.cpu_share for phase in calm), 3),
        flood_cpu_share=round(statistics.mean(phase.cpu_share for phase in wild), 3),
        memory_before_bytes=before_bytes,
        memory_peak_bytes=max(before_bytes, *(phase.memory_peak_bytes for phase in wild)),
        calm_grown_bytes=sum(phase.memory_grown_bytes for phase in calm),
        flood_grown_bytes=sum(phase.memory_grown_bytes for phase in wild),
    )


def _together(all_took: Iterable[FloodTook]) -> list[float]:
    return [taken for took in all_took for taken in took.accepted_ms]


def _percentile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        return round(values[0], 3) if values else float("nan")
    return round(statistics.quantiles(values, n=100)[percent - 1], 3)
