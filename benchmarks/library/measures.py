"""What is measured, which way is better, and what the project asks for."""

from __future__ import annotations

from typing import Literal

import msgspec

SLOTS = 20
"""How many tasks a worker runs at once."""
NAPS_MS = (1, 10)
LATENCY_PER_S = 200


def nap_key(milliseconds: int, task: str) -> str:
    """Return the key of the naps of one length, in threads (`nap`) or in coroutines (`nap_async`)."""
    return f"nap_{milliseconds}_{'async' if task == 'nap_async' else 'sync'}"


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that libraries are compared in. Of several keys, the best counts."""

    name: str
    title: str
    unit: Literal["/s", "ms", "MB", "µs"]
    keys: tuple[str, ...]

    @property
    def more_is_better(self) -> bool:
        return self.unit == "/s"


MEASURES = {
    measure.name: measure
    for measure in (
        Measure(name="one", title="enqueue one by one", unit="/s", keys=("enqueue_one",)),
        Measure(name="callers", title="enqueue, 64 callers of one process", unit="/s", keys=("enqueue_callers",)),
        Measure(name="hundreds", title="enqueue in hundreds", unit="/s", keys=("enqueue_hundreds",)),
        Measure(name="drain_1", title="drain of no-ops, 1 worker", unit="/s", keys=("drain_1",)),
        Measure(name="drain_2", title="drain, 2 workers", unit="/s", keys=("drain_2",)),
        Measure(name="naps_1", title="1 ms naps, concurrency 20", unit="/s", keys=("nap_1_async", "nap_1_sync")),
        Measure(name="naps_10", title="10 ms naps, concurrency 20", unit="/s", keys=("nap_10_async", "nap_10_sync")),
        Measure(name="start_p50", title="start latency p50 at 200/s", unit="ms", keys=("start_p50_ms",)),
        Measure(name="start_p99", title="start latency p99 at 200/s", unit="ms", keys=("start_p99_ms",)),
        Measure(name="memory", title="memory of a busy worker", unit="MB", keys=("memory_busy_mb",)),
    )
}


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """The least multiple of the fastest Python peer, or of one peer, that the project asks of one of ours."""

    ours: str
    measure: str
    wanted: float
    beside: str | None = None


BARS = [
    Bar(ours="penstock", measure="drain_1", wanted=2.0),
    Bar(ours="penstock", measure="drain_2", wanted=2.0),
    Bar(ours="penstock", measure="naps_1", wanted=3.0),
    Bar(ours="penstock", measure="callers", wanted=5.0),
    Bar(ours="penstock", measure="hundreds", wanted=1.3),
    Bar(ours="penstock", measure="one", wanted=1.0),
    Bar(ours="penstock", measure="start_p99", wanted=1.0),
    Bar(ours="penstock-embedded", measure="drain_1", wanted=3.0),
    Bar(ours="penstock-embedded", measure="one", wanted=1.4),
    Bar(ours="penstock-postgres", measure="drain_1", wanted=0.8, beside="pgqueuer"),
    Bar(ours="penstock-postgres", measure="hundreds", wanted=0.8, beside="pgqueuer"),
    Bar(ours="penstock-postgres", measure="start_p50", wanted=1.0, beside="pgqueuer"),
]


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """The most that the project allows one figure of ours to be."""

    ours: str
    key: str
    title: str
    unit: str
    wanted_max: float


CEILINGS = [
    Ceiling(ours="penstock", key="start_p50_ms", title="start latency p50", unit="ms", wanted_max=1.6),
    Ceiling(ours="penstock", key="worker_us", title="worker's processor time a job", unit="µs", wanted_max=5.0),
    Ceiling(ours="penstock", key="memory_busy_mb", title="memory of a busy worker", unit="MB", wanted_max=30.0),
]
