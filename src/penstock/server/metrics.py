"""Metrics in Prometheus's text form: requests, queues, long polls and the process, read when they are asked for."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock import __version__
from penstock.domain.errors import QueueDoesNotExist
from penstock.domain.limits import SECOND_MS
from penstock.server.counters import LATENCY_BOUNDS_S
from penstock.server.jobs.counters import JobCounters
from penstock.server.jobs.metrics import JobMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from penstock.domain.queue import Counts, QueueName
    from penstock.engine.engine import Engine
    from penstock.server.counters import RequestCounters

CONTENT_TYPE = CONTENT_TYPE_LATEST
QUEUES_LABELLED_MAX = 100
QUEUES_COUNTED_MAX = 1_000
_OTHERS = "(others)"
"""The label of all queues together that have none of their own. No queue can have this name."""


class _Depth(msgspec.Struct, gc=False):
    """What one queue holds, or several together."""

    visible: int = 0
    in_flight: int = 0
    delayed: int = 0
    oldest_age_ms: int | None = None
    """How long its longest waiting message has been there; None where several queues share a label."""

    def add(self, counts: Counts) -> None:
        self.visible += counts.visible
        self.in_flight += counts.in_flight
        self.delayed += counts.delayed


class Metrics:
    """Makes pages of metrics, one at a time: to count queues may take a while, and none is gained by doing it twice.

    The first `QUEUES_LABELLED_MAX` queues are told by name, the rest as one; beyond `QUEUES_COUNTED_MAX` they are not
    counted.
    """

    def __init__(self, engine: Engine, counters: RequestCounters, job_counters: JobCounters | None = None) -> None:
        self._engine = engine
        self._counters = counters
        self._jobs = JobMetrics(engine.jobs, job_counters or JobCounters())
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)
        self._making = asyncio.Lock()

    async def page(self) -> bytes:
        """Make a page."""
        async with self._making:
            depths, uncounted = await self._depths()
            of_jobs = await self._jobs.families()
        families = itertools.chain(
            _requests(self._counters),
            _queues(depths, uncounted),
            of_jobs,
            [
                GaugeMetricFamily(
                    "penstock_long_polls_waiting", "Receives that wait for a message.", self._engine.long_polls
                ),
                _build(),
            ],
        )
        return _text(families) + generate_latest(self._process)

    async def _depths(self) -> tuple[dict[tuple[str, str, str], _Depth], int]:
        depths: dict[tuple[str, str, str], _Depth] = {}
        uncounted = 0
        number = 0
        async for name in self._names():
            number += 1
            if number > QUEUES_COUNTED_MAX:
                uncounted = 1
                break
            try:
                counts = await self._engine.queues.count(name)
                own = number <= QUEUES_LABELLED_MAX
                oldest_age_ms = await self._engine.messages.oldest_age_ms(name) if own else None
            except QueueDoesNotExist:
                continue  # It was deleted since it was listed.
            label = (name.region, name.account, name.name) if own else ("", "", _OTHERS)
            depths.setdefault(label, _Depth(oldest_age_ms=oldest_age_ms)).add(counts)
        return depths, uncounted

    async def _names(self) -> AsyncIterator[QueueName]:
        async for region, account in self._places():
            after: str | None = ""
            while after is not None:
                page = await self._engine.queues.list_queues(region, account, after=after)
                for queue in page.queues:
                    yield queue.name
                after = page.after

    async def _places(self) -> AsyncIterator[tuple[str, str]]:
        places = await self._engine.queues.list_places()
        while places:
            for place in places:
                yield place
            places = await self._engine.queues.list_places(after=places[-1])


class _Families(Collector):
    """Families of metrics in the form in which the library takes them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _text(families: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(list(families)))
    return generate_latest(registry)


def _requests(counters: RequestCounters) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "penstock_requests", "SQS requests that were answered.", labels=["operation", "status"]
    )
    for (operation, status), count in sorted(counters.requests.items()):
        requests.add_metric([operation, str(status)], count)
    errors = CounterMetricFamily("penstock_errors", "SQS requests that were refused or failed.", labels=["code"])
    for code, count in sorted(counters.errors.items()):
        errors.add_metric([code], count)
    latency = HistogramMetricFamily(
        "penstock_request_duration_seconds",
        "From the whole request read to its answer made. A long poll's wait is part of it.",
        labels=["operation"],
    )
    for operation, latencies in sorted(counters.latencies.items()):
        bounds = [*(str(bound) for bound in LATENCY_BOUNDS_S), "+Inf"]
        totals = itertools.accumulate(latencies.buckets)
        latency.add_metric([operation], list(zip(bounds, totals, strict=True)), latencies.sum_s)
    yield from (requests, errors, latency)


def _queues(depths: dict[tuple[str, str, str], _Depth], uncounted: int) -> Iterator[Metric]:
    messages = GaugeMetricFamily(
        "penstock_queue_messages",
        "Messages in a queue by what hides them: visible, in_flight, delayed.",
        labels=["region", "account", "queue", "state"],
    )
    oldest = GaugeMetricFamily(
        "penstock_queue_oldest_message_age_seconds",
        "How long ago the message was sent that has been in the queue longest; 0 for an empty queue.",
        labels=["region", "account", "queue"],
    )
    for label, depth in depths.items():
        if depth.oldest_age_ms is not None:
            oldest.add_metric(label, depth.oldest_age_ms / SECOND_MS)
        messages.add_metric([*label, "visible"], depth.visible)
        messages.add_metric([*label, "in_flight"], depth.in_flight)
        messages.add_metric([*label, "delayed"], depth.delayed)
    yield messages
    yield oldest
    yield GaugeMetricFamily(
        "penstock_queues_uncounted", f"1 if there are more than {QUEUES_COUNTED_MAX} queues.", uncounted
    )


def _build() -> Metric:
    build = GaugeMetricFamily("penstock_build_info", "What is running.", labels=["version"])
    build.add_metric([__version__], 1)
    return build
