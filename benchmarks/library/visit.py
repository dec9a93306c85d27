"""One visit to a library: everything that is measured in one round; and the run in which a worker is killed."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.errors import WorkFailed
from benchmarks.library.findings import Killed
from benchmarks.library.measures import LATENCY_PER_S, NAPS_MS, SLOTS, nap_key
from benchmarks.library.stage import settle, standing_still
from benchmarks.process import cpu_seconds_of, processes_of, pss_bytes_of
from benchmarks.timing import Latency

if TYPE_CHECKING:
    from benchmarks.http_servers import Serving
    from benchmarks.jobs.program import Program
    from benchmarks.library.catalogue import Task
    from benchmarks.library.findings import Extent
    from benchmarks.library.stage import Stage, Way

_WAYS: tuple[Way, ...] = ("one", "callers", "hundreds")
_ENQUEUE_JOBS = (500, 20_000)
"""What is enqueued in any one way should not take longer than a second to be worked off, but be enough to measure."""
_DRAIN_JOBS = (100, 30_000)
_PILOT, _TWO_WORKERS, _NAPS = 0.3, 1.5, 0.7
"""How long a drain takes, as a share of the time for the one of one worker."""
_KILL_MS = 10
_KILL_SECONDS_MAX = 60.0
_KILL_AT = 0.25
"""The share of the jobs that have run when the worker is killed."""


class Visit:
    """Measures a library once; `figures` has what was found, by the key of the measure."""

    def __init__(self, stage: Stage, extent: Extent) -> None:
        self.figures: dict[str, float] = {}
        self._stage = stage
        self._extent = extent

    async def run(self) -> None:
        """Measure everything, with a producer and workers of this visit."""
        async with self._stage.producer() as producer:
            await self._stage.prepare(producer)
            with ExitStack() as working:
                worker = working.enter_context(self._stage.worker(0))
                await self._warm_up(producer)
                if not self._stage.rate:
                    await self._pilot(producer, worker)
                self.figures["memory_idle_mb"] = pss_bytes_of(worker.pid) / 1e6
                await self._enqueue_and_drain(producer, worker)
                with self._stage.worker(0) as second:
                    await self._warm_up(producer)
                    self.figures["drain_2"] = await self._drain(producer, [worker, second], self._jobs(_TWO_WORKERS))
                    await settle()
                self.figures["memory_busy_mb"] = pss_bytes_of(worker.pid) / 1e6
                if self._stage.entry.library.naps_apart:
                    working.close()  # It has settled.
                    worker = working.enter_context(self._stage.worker(SLOTS))
                    await self._warm_up(producer)
                await self._measure_naps(producer, worker)
                await self._measure_start(producer)
                await settle()

    def _jobs(self, share: float, per_s_max: float = math.inf) -> int:
        """Return how many jobs a worker does in this share of the time for a drain, by what is known of it."""
        return _within(min(self._stage.rate, per_s_max) * self._extent.seconds * share, _DRAIN_JOBS)

    async def _warm_up(self, producer: Program) -> None:
        """Have jobs enqueued in all ways, and run."""
        # Some workers first look for jobs of dead ones, and would take a job that just began for such a job.
        await settle()
        first, start = self._stage.jobs, len(self._stage.ledger)
        for way in _WAYS:
            await self._stage.enqueue(producer, way, count=self._extent.warm_up_jobs // len(_WAYS))
        await self._stage.finish(first, start)

    async def _pilot(self, producer: Program, worker: Serving) -> None:
        """Find out how fast a library drains, in two attempts: of a few hundred jobs it looks too slow."""
        self._stage.rate = await self._drain(producer, [worker], self._extent.warm_up_jobs)
        self._stage.rate = await self._drain(producer, [worker], self._jobs(_PILOT))

    async def _enqueue_and_drain(self, producer: Program, worker: Serving) -> None:
        """Enqueue in each way while the worker stands still, and then let it run all of that."""
        count_max, wanted = _within(self._stage.rate, _ENQUEUE_JOBS), self._jobs(1.0)
        first, start = self._stage.jobs, len(self._stage.ledger)
        with standing_still([worker]):
            for way in _WAYS:
                await self._enqueue(producer, way, count_max)
            self._stage.fastest_way = max(_WAYS, key=lambda way: self.figures[f"enqueue_{way}"])
            lacking = max(0, wanted - (self._stage.jobs - first))
            await self._stage.enqueue(producer, self._stage.fastest_way, count=lacking)
            jobs = self._stage.jobs - first
            cpu_s = cpu_seconds_of(worker.pid), self._store_cpu_s()
            started_ns = time.monotonic_ns()
        effects = await self._stage.finish(first, start)
        self._stage.rate = jobs * 1e9 / (max(effect.at_ns for effect in effects) - started_ns)
        self.figures["drain_1"] = self._stage.rate
        self.figures["worker_us"] = _us(cpu_seconds_of(worker.pid) - cpu_s[0], jobs)
        self.figures["store_us"] = _us(self._store_cpu_s() - cpu_s[1], jobs)

    async def _enqueue(self, producer: Program, way: Way, count_max: int) -> None:
        cpu_s = cpu_seconds_of(producer.pid), self._store_cpu_s()
        done = await self._stage.enqueue(producer, way, count=count_max, seconds=self._extent.enqueue_seconds)
        self.figures[f"enqueue_{way}"] = done.count / done.seconds
        self.figures[f"enqueue_{way}_client_us"] = _us(cpu_seconds_of(producer.pid) - cpu_s[0], done.count)
        self.figures[f"enqueue_{way}_store_us"] = _us(self._store_cpu_s() - cpu_s[1], done.count)

    async def _drain(
        self, producer: Program, workers: list[Serving], count: int, task: Task = "noop", argument: int = 0
    ) -> float:
        """Run jobs that all wait when the workers begin, and return how many ran in a second."""
        first, start = self._stage.jobs, len(self._stage.ledger)
        with standing_still(workers):
            await self._stage.enqueue(producer, self._stage.fastest_way, count=count, task=task, argument=argument)
            started_ns = time.monotonic_ns()
        effects = await self._stage.finish(first, start)
        return count * 1e9 / (max(effect.at_ns for effect in effects) - started_ns)

    async def _measure_naps(self, producer: Program, worker: Serving) -> None:
        for task in self._stage.entry.library.naps:
            for milliseconds in NAPS_MS:
                count = self._jobs(_NAPS, per_s_max=SLOTS * 1000 / milliseconds)
                napped = await self._drain(producer, [worker], count, task, milliseconds)
                self.figures[nap_key(milliseconds, task)] = napped

    async def _measure_start(self, producer: Program) -> None:
        """Measure from just before the call that enqueues to the first line of the task, one job at a time."""
        first, start = self._stage.jobs, len(self._stage.ledger)
        await self._stage.pace(producer, count=int(LATENCY_PER_S * self._extent.pace_seconds), per_s=LATENCY_PER_S)
        effects = await self._stage.finish(first, start)
        latency = Latency.of([(effect.at_ns - effect.sent_ns) / 1e9 for effect in effects])
        self.figures["start_p50_ms"], self.figures["start_p99_ms"] = latency.p50_ms, latency.p99_ms

    def _store_cpu_s(self) -> float:
        return sum(cpu_seconds_of(pid) for pid in self._stage.store.pids())


async def kill_a_worker(stage: Stage, extent: Extent, turns: asyncio.Semaphore) -> Killed:
    """Kill one of two workers in the middle of naps, and see what has become of the jobs after a while.

    Several libraries may do this at the same time, of which those that hold `turns` are busy.
    """
    with ExitStack() as working:
        first, start = stage.jobs, len(stage.ledger)
        async with turns:
            workers = [await asyncio.to_thread(working.enter_context, stage.worker(SLOTS)) for _ in range(2)]
            async with stage.producer() as producer:
                with standing_still(workers):
                    task = stage.entry.library.naps[0]
                    way, count = stage.fastest_way, extent.kill_jobs
                    await stage.enqueue(producer, way, count=count, task=task, argument=_KILL_MS)
                await _wait_for(stage, start + int(extent.kill_jobs * _KILL_AT))
                for pid in processes_of(workers[0].pid):
                    os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(extent.kill_wait_seconds)
        missing, doubled = stage.ledger.judge(range(first, stage.jobs))
        return Killed(jobs=extent.kill_jobs, missing=missing, doubled=doubled)


async def _wait_for(stage: Stage, records: int) -> None:
    ends_s = time.monotonic() + _KILL_SECONDS_MAX
    while len(stage.ledger) < records:
        if time.monotonic() > ends_s:
            raise WorkFailed(f"the workers did not come far enough to be killed within {_KILL_SECONDS_MAX:g} s")
        await asyncio.sleep(0.001)


def _within(value: float, limits: tuple[int, int]) -> int:
    return max(limits[0], min(limits[1], int(value)))


def _us(cpu_s: float, jobs: int) -> float:
    return cpu_s * 1e6 / jobs
