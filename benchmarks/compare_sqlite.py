"""SQLite beside the log-only limit, and with many waiting messages beside few."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from benchmarks.findings import BATCHES, Figure, Section
from benchmarks.log_limit import measure_log
from benchmarks.process import forget_peak_memory, peak_memory_bytes
from benchmarks.rounds import ratio, take_turns
from benchmarks.scratch import ScratchQueues
from benchmarks.store_run import BACKLOG_RATIO_WANTED, open_timed
from benchmarks.timing import Budget
from benchmarks.workload import QueueLoad, Workload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from benchmarks.findings import Extent
    from benchmarks.progress import Narrator
    from benchmarks.rounds import Contestant

    Loads = dict[int, QueueLoad]
    """The same queue under the workloads that differ in their batches, by batch."""

LOG_RATIOS_WANTED = {1: 14 / 34, 10: 40 / 140}
"""What share of the log-only limit the project asks for, by batch."""

OPEN_MS_MAX = 2_000
_WARM_UP_SECONDS = 0.3


async def compare_sqlite(extent: Extent, folder: Path, narrator: Narrator) -> list[Section]:
    """Measure stores in files of this folder."""
    few, many = extent.small_backlog, extent.large_backlog
    async with _waiting(extent, few, folder / "limit.db", narrator) as (loads, _):
        narrator.say("SQLite beside the log-only limit …")
        limit = await _beside_the_log(extent, folder, loads)
    async with (
        _waiting(extent, few, folder / "few.db", narrator) as (few_loads, _),
        _waiting(extent, many, folder / "many.db", narrator) as (many_loads, open_ms),
    ):
        narrator.say(f"SQLite with {many:,} waiting messages beside {few:,} …")
        forget_peak_memory()
        backlog = await _beside_few(extent, few_loads, many_loads)
        figures = [
            Figure(name=f"opening with {many:,} waiting", value=open_ms, unit="ms", wanted_max=OPEN_MS_MAX),
            Figure(name="memory of this process at the peak", value=round(peak_memory_bytes() / 1e6, 1), unit="MB"),
        ]
    return [limit, msgspec.structs.replace(backlog, figures=figures)]


@asynccontextmanager
async def _waiting(extent: Extent, messages: int, path: Path, narrator: Narrator) -> AsyncIterator[tuple[Loads, float]]:
    """Fill a queue in a new store and open that again; give the work on it, and the milliseconds that opening took."""
    url = f"sqlite:{path}"
    async with open_timed(url) as (store, _):
        queue = await ScratchQueues().make(store, "waiting")
        loads = {batch: QueueLoad(store, queue, workload) for batch, workload in extent.workloads().items()}
        with narrator.counting(f"Filling a queue with {messages:,} messages", messages) as stored:
            await next(iter(loads.values())).fill(messages, stored)
    async with open_timed(url) as (store, open_ms):
        loads = {batch: load.on(store) for batch, load in loads.items()}
        for load in loads.values():
            await load.lifecycle(Budget(seconds=_WARM_UP_SECONDS))
        yield loads, open_ms


async def _beside_the_log(extent: Extent, folder: Path, loads: Loads) -> Section:
    contestants: dict[str, Contestant] = {}
    for batch, workload in extent.workloads().items():
        contestants[f"SQLite, {BATCHES[batch]}"] = _lifecycle(loads[batch], extent)
        contestants[f"log only, {BATCHES[batch]}"] = _log_lifecycle(folder, workload, extent)
    trials = await take_turns(contestants, extent.rounds)
    ratios = [
        ratio(
            f"SQLite to log only, {how}",
            trials[f"SQLite, {how}"],
            trials[f"log only, {how}"],
            wanted=round(LOG_RATIOS_WANTED[batch], 2),
        )
        for batch, how in BATCHES.items()
    ]
    return Section(title="SQLite beside the log-only limit", trials=list(trials.values()), ratios=ratios)


async def _beside_few(extent: Extent, few: Loads, many: Loads) -> Section:
    contestants: dict[str, Contestant] = {}
    for batch, how in BATCHES.items():
        contestants[f"{extent.small_backlog:,} waiting, {how}"] = _lifecycle(few[batch], extent)
        contestants[f"{extent.large_backlog:,} waiting, {how}"] = _lifecycle(many[batch], extent)
    trials = await take_turns(contestants, extent.rounds)
    ratios = [
        ratio(
            f"{extent.large_backlog:,} to {extent.small_backlog:,} waiting, {how}",
            trials[f"{extent.large_backlog:,} waiting, {how}"],
            trials[f"{extent.small_backlog:,} waiting, {how}"],
            wanted=BACKLOG_RATIO_WANTED,
        )
        for how in BATCHES.values()
    ]
    title = f"SQLite with {extent.large_backlog:,} waiting messages"
    return Section(title=title, trials=list(trials.values()), ratios=ratios)


def _lifecycle(load: QueueLoad, extent: Extent) -> Contestant:
    return lambda: load.lifecycle(Budget(seconds=extent.seconds))


def _log_lifecycle(folder: Path, workload: Workload, extent: Extent) -> Contestant:
    return lambda: measure_log(folder, workload, Budget(seconds=extent.seconds))
