"""What a comparison found: trials, ratios and single figures, by the question that they answer."""

from __future__ import annotations

import msgspec

from benchmarks.rounds import Ratio, Trial
from benchmarks.workload import Workload

BATCHES = {1: "one by one", 10: "in tens"}
"""How many messages an operation handles, as callers do when they are few and when they are many."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A single number, and the most that the project allows it to be, if it says so."""

    name: str
    value: float
    unit: str
    wanted_max: float | None = None

    @property
    def reached(self) -> bool:
        """Whether it is what the project asks for."""
        return self.wanted_max is None or self.value <= self.wanted_max


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer."""

    title: str
    trials: list[Trial]
    ratios: list[Ratio] = []
    figures: list[Figure] = []
    operations: str | None = None
    """What its operations are called, where their number tells more than that of the messages alone."""


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured: the defaults take less than two minutes in all, `full()` many."""

    rounds: int = 5
    seconds: float = 0.6
    """How long each measurement takes."""
    small_backlog: int = 1_000
    large_backlog: int = 100_000
    held_seconds: float = 8.0
    """How long a transaction is held open; what is measured is the end of that time."""
    callers: int = 64
    body_bytes: int = 1024

    @classmethod
    def full(cls) -> Extent:
        """Measure longer, with a million messages waiting."""
        return cls(rounds=9, seconds=2.0, large_backlog=1_000_000, held_seconds=60.0)

    def workloads(self) -> dict[int, Workload]:
        """Return what callers do, by batch."""
        return {batch: Workload(callers=self.callers, batch=batch, body_bytes=self.body_bytes) for batch in BATCHES}
