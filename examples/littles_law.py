"""Measure Little's law on a worker: jobs in the system = arrival rate × time in the system (L = λ × W).

    python examples/littles_law.py [--seconds 10] [--slots 10] [--task-ms 50] [--rates 50 100 ...]

Jobs arrive at random (Poisson), each sleeps for the same time. λ and W are measured where jobs are enqueued and run.
L is what the queue itself counts, sampled every 50 ms, so the two sides of the equation do not share their numbers.
The store is a new SQLite file, unless PENSTOCK_URL says otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from penstock import Job, Penstock, Worker

SAMPLE_S = 0.05


class Measured(NamedTuple):
    """What one rate gave."""

    arrivals: float
    """Per second."""
    time_s: float
    """From the call of enqueue to the end of the task, on average."""
    in_system: float
    """Jobs that wait or run, on average."""
    left: int
    """Jobs that still wait at the end."""


async def measure(url: str, rate: float, seconds: float, slots: int, task_s: float) -> Measured:
    queue = f"rate-{rate:g}"
    async with Penstock(url) as app:
        ended: dict[int, float] = {}
        begun: dict[int, float] = {}

        @app.task(name="nap", queue=queue)
        async def nap(number: int) -> None:
            await asyncio.sleep(task_s)
            ended[number] = time.perf_counter()

        worker = Worker(app, {queue: slots}, grace=10)
        running = asyncio.create_task(worker.run(signals=False))
        await (await nap.enqueue(-1)).result(timeout=10)  # All connections are open from here on.

        enqueueing: list[asyncio.Task[Job[None]]] = []
        samples: list[int] = []
        left = 0
        start = time.perf_counter()
        due, sample_at = start, start
        while (now := time.perf_counter()) < start + seconds:
            while due <= now:
                begun[len(begun)] = now
                enqueueing.append(asyncio.create_task(nap.enqueue(len(begun) - 1)))
                due += random.expovariate(rate)
            if now >= sample_at:
                counts = (await app.queues.get(queue)).counts
                left = counts.get("queued", 0)
                samples.append(left + counts.get("offered", 0) + counts.get("running", 0))
                sample_at += SAMPLE_S
            await asyncio.sleep(max(min(due, sample_at) - time.perf_counter(), 0))
        for job in await asyncio.gather(*enqueueing):
            await job.result(timeout=60)
        worker.stop()
        await running
    time_s = statistics.fmean(ended[number] - at for number, at in begun.items())
    return Measured(len(begun) / seconds, time_s, statistics.fmean(samples), left)


async def main(options: argparse.Namespace, url: str) -> None:
    task_s = options.task_ms / 1_000
    print(f"{options.slots} slots, tasks of {options.task_ms:g} ms: at most {options.slots / task_s:g} jobs a second")
    print("  λ asked   λ, /s   W, ms   λ × W   L measured   busy slots   left waiting")
    for rate in options.rates:
        found = await measure(url, rate, options.seconds, options.slots, task_s)
        busy = min(found.arrivals * task_s, options.slots)
        print(
            f"{rate:9g} {found.arrivals:7.1f} {found.time_s * 1_000:7.1f} {found.arrivals * found.time_s:7.2f}"
            f" {found.in_system:12.2f} {busy:12.1f} {found.left:14d}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--task-ms", type=float, default=50)
    parser.add_argument("--rates", type=float, nargs="+", default=[50, 100, 150, 190, 250])
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(parser.parse_args(), os.environ.get("PENSTOCK_URL") or f"sqlite:{Path(folder) / 'jobs.db'}"))
