"""What requests come to: plain numbers, added up as requests are answered and read when somebody asks for metrics."""

from __future__ import annotations

from bisect import bisect_left

UNKNOWN_OPERATION = "Unknown"
"""Stands for the operation of requests that were refused before it was known."""

LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)
"""Long polls take up to 20 seconds, and by no fault."""


class Latencies:
    """A histogram: how many requests took how long, and all of them together."""

    __slots__ = ("buckets", "sum_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.sum_s = 0.0


class RequestCounters:
    """Counts requests. Every key is one of few: operations, statuses and codes are closed sets."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.errors: dict[str, int] = {}
        self.latencies: dict[str, Latencies] = {}

    def count(self, operation: str, status: int, code: str, seconds: float) -> None:
        """Take in one request that was answered; `code` is empty if it succeeded."""
        key = (operation, status)
        requests = self.requests
        requests[key] = requests.get(key, 0) + 1
        if code:
            self.errors[code] = self.errors.get(code, 0) + 1
        latencies = self.latencies.get(operation)
        if latencies is None:
            latencies = self.latencies[operation] = Latencies()
        latencies.buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        latencies.sum_s += seconds
