"""Many callers at once, each repeating one operation, and what that gives: rates and latencies."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from array import array
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Step = Callable[[int], Awaitable[int]]
    """Handles up to so many messages, and says how many it did."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long one operation took."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """Sum up samples, of which there is at least one."""
        ordered = sorted(seconds)
        p50, p90, p99 = (round(percentile(ordered, share) * 1000, 3) for share in (0.50, 0.90, 0.99))
        return cls(p50_ms=p50, p90_ms=p90, p99_ms=p99, max_ms=round(ordered[-1] * 1000, 3))


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """What one measurement gave. An operation handles a batch of messages; a lifecycle counts as one operation.

    The processor time is that of this process, or of the server that was measured, in all its threads: it tells least
    of what else the machine did.
    """

    operations: int
    messages: int
    seconds: float
    operations_per_s: float
    messages_per_s: float
    cpu_us_per_message: float
    latency: Latency

    @property
    def cpu_us_per_operation(self) -> float:
        """The same time, by operations."""
        return self.cpu_us_per_message * self.messages / self.operations


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the ordered samples that at least this share of them does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Budget:
    """When a measurement is over: once so many messages were handed out, or so many seconds after the first."""

    def __init__(self, *, messages: int | None = None, seconds: float = math.inf) -> None:
        assert (messages is None) != (seconds == math.inf), "one of them ends it"
        self._messages = messages
        self._seconds = seconds
        self._ends_s: float | None = None

    def take(self, count: int) -> int:
        """Hand out up to `count` messages; 0 says that it is over."""
        if self._messages is None:
            now_s = time.perf_counter()
            if self._ends_s is None:
                self._ends_s = now_s + self._seconds
            return count if now_s < self._ends_s else 0
        taken = min(count, self._messages)
        self._messages -= taken
        return taken


class Stopwatch:
    """Adds up what callers did, over one or several stretches of time."""

    def __init__(self) -> None:
        self._latencies_s = array("d")
        self._messages = 0
        self._seconds = 0.0
        self._cpu_seconds = 0.0

    @property
    def messages(self) -> int:
        """How many messages were handled so far."""
        return self._messages

    async def run(self, step: Step, *, callers: int, batch: int, budget: Budget) -> int:
        """Let the callers repeat the step until the budget is spent; return how many messages they handled."""
        before = self._messages
        started_s, cpu_started_s = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(callers):
                tasks.create_task(self._call(step, batch, budget))
        self._seconds += time.perf_counter() - started_s
        self._cpu_seconds += time.process_time() - cpu_started_s
        return self._messages - before

    async def _call(self, step: Step, batch: int, budget: Budget) -> None:
        while count := budget.take(batch):
            started_s = time.perf_counter()
            done = await step(count)
            self._latencies_s.append(time.perf_counter() - started_s)
            self._messages += done

    def rate(self) -> Rate:
        """Sum up. Something must have been measured."""
        operations = len(self._latencies_s)
        assert operations, "nothing was measured"
        return Rate(
            operations=operations,
            messages=self._messages,
            seconds=round(self._seconds, 4),
            operations_per_s=round(operations / self._seconds, 1),
            messages_per_s=round(self._messages / self._seconds, 1),
            cpu_us_per_message=round(self._cpu_seconds * 1e6 / max(1, self._messages), 2),
            latency=Latency.of(self._latencies_s),
        )


async def measure(step: Step, *, callers: int, batch: int, budget: Budget) -> Rate:
    """Measure one step in one go."""
    stopwatch = Stopwatch()
    await stopwatch.run(step, callers=callers, batch=batch, budget=budget)
    return stopwatch.rate()


def median_rate(rates: Sequence[Rate]) -> float:
    """Return the median of messages per second."""
    return statistics.median(rate.messages_per_s for rate in rates)
