"""`penstock bench flood`: enqueueing far above what a queue takes, and how those fare whose jobs it does take."""

from __future__ import annotations

import asyncio
import statistics
import sys
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import msgspec

from penstock.bench.compare_postgres import some_server
from penstock.bench.http_servers import penstock_server
from penstock.bench.jobs.flood_load import FloodLoad, FloodTook
from penstock.bench.jobs.program import running
from penstock.bench.jobs.run import NO_POSTGRES, empty_stores
from penstock.bench.jobs.service import put_queue
from penstock.bench.machine import describe_machine
from penstock.bench.process import cpu_seconds_of, memory_bytes_of
from penstock.bench.scratch import temporary_folder
from penstock.bench.store_run import utc_now

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.bench.http_servers import Serving
    from penstock.bench.jobs.program import Program
    from penstock.bench.progress import Narrator

P99_RATIO_MAX = 2.0
"""How many times as long as unloaded an accepted enqueue may take in a flood."""

_UNLOADED = 0.95
"""The pace without a flood, as a share of what the queue takes, so that nothing is refused."""
_UNLOADED_CONNECTIONS = 8
_DEPTH_MAX = 500
_WARM_UP_SECONDS = 1.0
_MEMORY_EVERY_S = 0.1
_LATE_S = 30.0


class FloodPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    rounds: int = 3
    seconds: float = 3.0
    connections: int = 64
    per_second: int = 100
    """How many jobs the queue takes: by its rate, or because so many are worked off."""
    payload_bytes: int = 1024
    postgres: bool = True


class FloodTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One queue on one store: enqueues that were accepted, without a flood and in one, and what the flood was like."""

    name: str
    unloaded_p50_ms: float
    unloaded_p99_ms: float
    flood_p50_ms: float
    flood_p99_ms: float
    p99_ratios: list[float]
    """By round."""
    accepted_per_s: float
    refused_per_s: float
    refused_share: float
    reasons: list[str]
    cpu_us_per_refusal: float
    """Processor time of the server in the flood, for each request of it."""
    memory_before_bytes: int
    memory_peak_bytes: int
    memory_after_bytes: int

    @property
    def p99_ratio(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.p99_ratios)


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
    async with running([sys.executable, "-m", "penstock.bench.jobs.flood_load"], home, "clients") as clients:
        with penstock_server(home, url) as server:
            put_queue(server, "limited", limited)
            put_queue(server, "bounded", {"depth_max": _DEPTH_MAX})
            return [
                await _Flood(plan, server, clients, "limited").measure(f"{store}, limited in rate"),
                await _Flood(plan, server, clients, "bounded").measure(f"{store}, bounded in depth"),
            ]


class _Flood:
    """One queue, in turns without and with a flood."""

    def __init__(self, plan: FloodPlan, server: Serving, clients: Program, queue: str) -> None:
        self._plan = plan
        self._server = server
        self._clients = clients
        self._calm = FloodLoad(
            port=server.port,
            queue=queue,
            seconds=plan.seconds,
            connections=_UNLOADED_CONNECTIONS,
            payload_bytes=plan.payload_bytes,
            per_second=plan.per_second * _UNLOADED,
            worked_per_second=plan.per_second,
        )
        self._wild = msgspec.structs.replace(self._calm, connections=plan.connections, per_second=None)

    async def measure(self, name: str) -> FloodTrial:
        for load in (self._calm, self._wild):
            await self._run(msgspec.structs.replace(load, seconds=_WARM_UP_SECONDS))
        pid = self._server.pid
        before_bytes = peak_bytes = memory_bytes_of(pid)
        calm, wild, cpu_s = list[FloodTook](), list[FloodTook](), 0.0
        for _ in range(self._plan.rounds):
            calm.append(await self._run(self._calm))
            cpu_s -= cpu_seconds_of(pid)
            watching = asyncio.create_task(_peak_memory(pid))
            try:
                wild.append(await self._run(self._wild))
            finally:
                watching.cancel()
                await asyncio.wait([watching])
            cpu_s += cpu_seconds_of(pid)
            peak_bytes = max(peak_bytes, memory_bytes_of(pid), watching.result() if not watching.cancelled() else 0)
        return _summed_up(name, calm, wild, cpu_s, (before_bytes, peak_bytes, memory_bytes_of(pid)))

    async def _run(self, load: FloodLoad) -> FloodTook:
        return await self._clients.ask_for(FloodTook, load, seconds_max=load.seconds + _LATE_S)


async def _peak_memory(pid: int) -> int:
    """Look at a process's memory until cancelled, and return the most that was seen."""
    most_bytes = 0
    try:
        while True:
            most_bytes = max(most_bytes, memory_bytes_of(pid))
            await asyncio.sleep(_MEMORY_EVERY_S)
    except asyncio.CancelledError:
        return most_bytes


def _summed_up(
    name: str, calm: list[FloodTook], wild: list[FloodTook], cpu_s: float, memory_bytes: tuple[int, int, int]
) -> FloodTrial:
    refused = sum(sum(took.refused.values()) for took in wild)
    accepted = sum(len(took.accepted_ms) for took in wild)
    seconds = sum(took.seconds for took in wild)
    all_calm = [taken for took in calm for taken in took.accepted_ms]
    all_wild = [taken for took in wild for taken in took.accepted_ms]
    before, peak, after = memory_bytes
    return FloodTrial(
        name=name,
        unloaded_p50_ms=_percentile(all_calm, 50),
        unloaded_p99_ms=_percentile(all_calm, 99),
        flood_p50_ms=_percentile(all_wild, 50),
        flood_p99_ms=_percentile(all_wild, 99),
        p99_ratios=[
            round(_percentile(loud.accepted_ms, 99) / _percentile(quiet.accepted_ms, 99), 2)
            for quiet, loud in zip(calm, wild, strict=True)
        ],
        accepted_per_s=round(accepted / seconds, 1),
        refused_per_s=round(refused / seconds, 1),
        refused_share=round(refused / (accepted + refused), 4),
        reasons=sorted({reason for took in wild for reason in took.refused}),
        cpu_us_per_refusal=round(cpu_s * 1e6 / (accepted + refused), 1),
        memory_before_bytes=before,
        memory_peak_bytes=peak,
        memory_after_bytes=after,
    )


def _percentile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        return round(values[0], 3) if values else float("nan")
    return round(statistics.quantiles(values, n=100)[percent - 1], 3)
