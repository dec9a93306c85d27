"""What was found about growth: rates at several amounts of something, each as a share of the best."""

from __future__ import annotations

import math
import statistics

import msgspec

from benchmarks.findings import Figure
from benchmarks.timing import Rate

FLAT_SHARE_WANTED = 0.8
MEMORY_MB_WANTED_MAX = 300.0
AXES = ("queues", "backlog", "connections", "sizes", "nodes", "small-nodes", "flood")


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured. The defaults take about ten minutes, `quick()` three."""

    rounds: int = 5
    seconds: float = 2.0
    connections: int = 64
    body_bytes: int = 1024
    queues: tuple[int, ...] = (1, 100, 10_000)
    backlogs: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    many_connections: tuple[int, ...] = (16, 64, 256, 1_000)
    sizes_bytes: tuple[int, ...] = (100, 1_024, 10_240, 65_536, 262_000)
    nodes: tuple[int, ...] = (1, 2)
    small_nodes: tuple[int, ...] = (1, 2, 4, 8)
    small_node_share: float = 0.2
    """How much of a core each of those has."""
    flood_windows: int = 15
    """How many times a flood is looked at; it goes on for so many measurements."""
    fill_seconds_max: float = 400.0

    @classmethod
    def quick(cls) -> Scope:
        """Measure less, with a tenth of the messages."""
        return cls(rounds=2, seconds=1.0, backlogs=(1_000, 10_000, 100_000), queues=(1, 100, 1_000), flood_windows=8)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One amount, and what was measured at it."""

    amount: int
    rounds: list[Rate]
    memory_bytes: int | None = None
    database_cpu_us: float | None = None
    """The processor time of the database for each request, where there is a database server."""

    @property
    def requests_per_s(self) -> float:
        return statistics.median(rate.operations_per_s for rate in self.rounds)

    @property
    def cpu_us(self) -> float:
        """The processor time of the server for each request."""
        return statistics.median(rate.cpu_us_per_operation for rate in self.rounds)

    @property
    def p99_ms(self) -> float:
        return statistics.median(rate.latency.p99_ms for rate in self.rounds)


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """What grows, and what that does. With `flat`, no point may fall behind the best by much."""

    name: str
    title: str
    flat: bool
    points: list[Point]
    figures: list[Figure] = []

    def share(self, point: Point) -> float:
        """Return its rate as a share of the best one's, round by round, so that what slows a round down cancels out."""
        best = max(self.points, key=lambda each: each.requests_per_s)
        pairs = zip(point.rounds, best.rounds, strict=True)
        return statistics.median(mine.operations_per_s / theirs.operations_per_s for mine, theirs in pairs)

    def cpu_share(self, point: Point) -> float:
        """Return the least processor time of all as a share of its own."""
        # What is measured too shortly takes no time that the system would tell of.
        return min(each.cpu_us for each in self.points) / (point.cpu_us or math.inf)


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a flood: how fast sends were accepted, how long they took, and what memory the server had then."""

    rate: Rate
    memory_bytes: int
    waiting: int


class Flood(msgspec.Struct, frozen=True, kw_only=True):
    """Sends as fast as they are accepted, and consumers that take only a few of the messages."""

    windows: list[Window]
    consumed: int
    figures: list[Figure]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be measured."""

    name: str
    reason: str


class ScalingReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and where."""

    started_at: str
    machine: str
    event_loop: str
    generator: str
    scope: Scope
    axes: list[Axis]
    flood: Flood | None
    missing: list[Missing]
