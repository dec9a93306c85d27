"""What a comparison with the peers found: rates and memory by server and load, and what could not be measured."""

from __future__ import annotations

import math
import statistics

import msgspec

from benchmarks.rounds import Ratio
from benchmarks.timing import Rate

BARE = "bare"
PENSTOCK = "penstock"

FAST_RATIO_WANTED = 1.5
BATCH_RATIO_WANTED = 2.0
HAND_OVER_RATIO_WANTED = 1.0
BARE_RATIO_WANTED = 0.5


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured. The defaults take a few minutes, `full()` a quarter of an hour."""

    rounds: int = 3
    seconds: float = 1.0
    """How long each measurement takes; with wrk, the next whole number."""
    connections: int = 64
    body_bytes: int = 1024
    groups: int = 1_000
    backlog: int = 100_000
    warm_up_cpu_seconds: float = 20.0
    """How much processor time the server that needs most gets before it is measured."""
    fill_seconds_max: float = 60.0
    """A backlog that takes a server longer is not made."""

    @classmethod
    def full(cls) -> Scope:
        """Measure longer."""
        return cls(rounds=5, seconds=3.0, warm_up_cpu_seconds=60.0, fill_seconds_max=120.0)


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One of those that were measured."""

    name: str
    title: str
    keeps: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One server under one load: a rate for every round, or what memory it took."""

    server: str
    load: str
    rounds: list[Rate] = []
    memory: Memory | None = None

    @property
    def requests_per_s(self) -> float:
        return statistics.median(rate.operations_per_s for rate in self.rounds)

    @property
    def messages_per_s(self) -> float:
        return statistics.median(rate.messages_per_s for rate in self.rounds)

    @property
    def cpu_us_per_request(self) -> float:
        return statistics.median(rate.cpu_us_per_operation for rate in self.rounds)

    @property
    def p50_ms(self) -> float:
        return statistics.median(rate.latency.p50_ms for rate in self.rounds)

    @property
    def p99_ms(self) -> float:
        return statistics.median(rate.latency.p99_ms for rate in self.rounds)


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory (resident set) of a fresh, warmed-up server before and after so many messages were put into it."""

    messages: int
    before_bytes: int
    after_bytes: int

    @property
    def mb_per_100k(self) -> float:
        """How much more it took for every 100,000 messages."""
        return (self.after_bytes - self.before_bytes) / 1e6 * 100_000 / self.messages


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be measured: a server under one load, or under any."""

    server: str
    load: str | None = None
    reason: str


class PeersReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and where."""

    started_at: str
    machine: str
    event_loop: str
    generator: str
    scope: Scope
    servers: list[Server]
    results: list[Result]
    ratios: list[Ratio]
    missing: list[Missing]

    def result(self, server: str, load: str) -> Result | None:
        """Return what was measured of a server under a load, if it was."""
        return next((each for each in self.results if (each.server, each.load) == (server, load)), None)


def promises(results: list[Result]) -> list[Ratio]:
    """Say how Penstock stands to the best of its peers, and to the bare handler, where both were measured.

    More is better in all of them.
    """
    by_load: dict[str, dict[str, Result]] = {}
    for each in results:
        by_load.setdefault(each.load, {})[each.server] = each
    ratios = []
    for load, wanted in (("send", FAST_RATIO_WANTED), ("lifecycle", FAST_RATIO_WANTED)):
        ours, peers = _ours_and_peers(by_load.get(load, {}))
        if ours and peers:
            best = max(peer.requests_per_s for peer in peers)
            ratios.append(_ratio(f"{load}: requests/s to the fastest peer", ours.requests_per_s / best, wanted))
    for load, batch_wanted in (("send-tens", BATCH_RATIO_WANTED), ("lifecycle-tens", None), ("fifo", None)):
        ours, peers = _ours_and_peers(by_load.get(load, {}))
        if ours and peers:
            best = max(peer.messages_per_s for peer in peers)
            ratios.append(_ratio(f"{load}: messages/s to the fastest peer", ours.messages_per_s / best, batch_wanted))
    ours, peers = _ours_and_peers(by_load.get("hand-over", {}))
    if ours and peers:
        best = min(peer.p99_ms for peer in peers)
        ratios.append(_ratio("hand-over: p99 of the best peer to ours", best / ours.p99_ms, HAND_OVER_RATIO_WANTED))
    sends = by_load.get("send", {})
    if PENSTOCK in sends and BARE in sends:
        # What is measured too shortly takes no time that the system would tell of.
        value = sends[BARE].cpu_us_per_request / (sends[PENSTOCK].cpu_us_per_request or math.inf)
        ratios.append(_ratio("send: processor time of the bare handler to ours", value, BARE_RATIO_WANTED))
    return ratios


def _ours_and_peers(of_load: dict[str, Result]) -> tuple[Result | None, list[Result]]:
    return of_load.get(PENSTOCK), [each for server, each in of_load.items() if server not in {PENSTOCK, BARE}]


def _ratio(name: str, value: float, wanted: float | None) -> Ratio:
    return Ratio(name=name, value=round(value, 3), wanted=wanted)
