"""Metrics of the job service, as families that Prometheus's library writes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from penstock.domain.job import IN_FLIGHT, JobState, Move
from penstock.domain.job_errors import JobQueueDoesNotExist, TooMany
from penstock.domain.limits import SECOND_MS
from penstock.server.counters import LATENCY_BOUNDS_S
from penstock.store.job_port import ENQUEUED, FAILED_FOR_NOW, FAILED_PERMANENTLY, TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from penstock.domain.job_queue import JobCounts
    from penstock.engine.jobs.jobs import Jobs
    from penstock.engine.jobs.streams import Streams
    from penstock.server.jobs.counters import JobCounters
    from penstock.store.job_port import StagedCounts

QUEUES_LABELLED_MAX = 100
QUEUES_COUNTED_MAX = 1_000
OTHERS = "(others)"
"""The label of all queues together that have none of their own. No queue can have this name."""

_PLAIN: dict[str, tuple[str, str]] = {
    "penstock_jobs_enqueued": ("Jobs that were stored, by schedules too.", ENQUEUED),
    "penstock_jobs_offered": ("Offers to workers.", Move.OFFER),
    "penstock_jobs_returned": ("Offers that were not accepted.", Move.RETURN),
    "penstock_jobs_accepted": ("Attempts that began.", Move.ACCEPT),
    "penstock_jobs_completed": ("Attempts that succeeded.", Move.COMPLETE),
    "penstock_jobs_released": ("Attempts that workers gave back.", Move.RELEASE),
    "penstock_jobs_snoozed": ("Attempts that workers put off.", Move.SNOOZE),
    "penstock_jobs_cancelled": ("Jobs that were cancelled.", Move.CANCEL),
    "penstock_jobs_expired": ("Jobs that expired before they started.", Move.EXPIRE),
}
"""By name: what is counted in one number."""

_BY: dict[str, tuple[str, str, dict[str, str]]] = {
    "penstock_jobs_failed": (
        "Attempts that failed.",
        "kind",
        {"permanent": FAILED_PERMANENTLY, "transient": FAILED_FOR_NOW, "timeout": TIMED_OUT},
    ),
    "penstock_jobs_lost": (
        "Attempts whose lease lapsed.",
        "outcome",
        {"retrying": Move.LOSE, "dead": Move.LOSE_FOR_GOOD},
    ),
    "penstock_jobs_retried": (
        "Jobs that are to run again.",
        "after",
        {"failure": Move.FAIL, "loss": Move.LOSE, "request": Move.RETRY},
    ),
    "penstock_jobs_dead": (
        "Jobs that failed for good.",
        "of",
        {"failure": Move.FAIL_FOR_GOOD, "loss": Move.LOSE_FOR_GOOD},
    ),
}
"""By name: what is counted by the values of a label."""


class _Held(msgspec.Struct, gc=False):
    """What one queue holds, or several together."""

    by_state: dict[JobState, int]
    oldest_due_ms: int | None
    """None where several queues share a label."""

    def add(self, counts: JobCounts) -> None:
        for state, number in counts.by_state.items():
            self.by_state[state] = self.by_state.get(state, 0) + number


class JobMetrics:
    """Tells what the job service does and holds.

    The first `QUEUES_LABELLED_MAX` queues are told by name, the rest as one; beyond `QUEUES_COUNTED_MAX` they are not
    counted.
    """

    def __init__(self, jobs: Jobs, counters: JobCounters) -> None:
        self._jobs = jobs
        self._counters = counters

    async def families(self) -> list[Metric]:
        """Make all families."""
        held, uncounted = await self._held()
        staged = await self._jobs.staging.counts()
        steps = self._jobs.steps()
        return [
            *_steps(steps),
            *_turned_away(self._counters),
            *_requests(self._counters),
            *_queues(held, uncounted),
            *_staged(staged),
            *_streams(self._jobs.streams),
            GaugeMetricFamily("penstock_job_polls_waiting", "Workers that wait for a job.", self._jobs.long_polls),
        ]

    async def _held(self) -> tuple[dict[str, _Held], int]:
        held: dict[str, _Held] = {}
        number = 0
        after: str | None = ""
        while after is not None:
            page = await self._jobs.queues.list_queues(after=after)
            for queue in page.queues:
                number += 1
                if number > QUEUES_COUNTED_MAX:
                    return held, 1
                try:
                    counts = await self._jobs.queues.counts(queue)
                except JobQueueDoesNotExist:
                    continue  # It was deleted since it was listed.
                own = number <= QUEUES_LABELLED_MAX
                oldest_due_ms = (counts.oldest_due_ms or 0) if own else None
                held.setdefault(queue.name if own else OTHERS, _Held({}, oldest_due_ms)).add(counts)
            after = page.after
        return held, 0


def _steps(steps: Mapping[str, int]) -> Iterator[Metric]:
    for name, (text, step) in _PLAIN.items():
        yield CounterMetricFamily(name, text, steps.get(step, 0))
    for name, (text, label, values) in _BY.items():
        family = CounterMetricFamily(name, text, labels=[label])
        for value, step in values.items():
            family.add_metric([value], steps.get(step, 0))
        yield family


def _staged(counts: StagedCounts | None) -> Iterator[Metric]:
    if counts is not None:
        family = GaugeMetricFamily(
            "penstock_jobs_staged", "Jobs of users' transactions that are not enqueued.", labels=["state"]
        )
        family.add_metric(["waiting"], counts.waiting)
        family.add_metric(["refused"], counts.refused)
        yield family


def _turned_away(counters: JobCounters) -> Iterator[Metric]:
    refused = CounterMetricFamily(
        "penstock_jobs_refused", "Jobs that were turned away because there were too many.", labels=["reason"]
    )
    for why in TooMany:
        refused.add_metric([why], counters.refused.get(why, 0))
    found = CounterMetricFamily(
        "penstock_jobs_replayed", "Jobs that were there already, by the key that stood for them.", labels=["key"]
    )
    for kind in ("idempotency", "unique"):
        found.add_metric([kind], counters.found.get(kind, 0))
    yield from (refused, found)


def _requests(counters: JobCounters) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "penstock_job_requests", "Requests of the job API that were answered.", labels=["operation", "status"]
    )
    for (operation, status), count in sorted(counters.requests.requests.items()):
        requests.add_metric([operation, str(status)], count)
    problems = CounterMetricFamily(
        "penstock_job_problems", "Requests of the job API that were refused or failed.", labels=["type"]
    )
    for kind, count in sorted(counters.requests.errors.items()):
        problems.add_metric([kind], count)
    latency = HistogramMetricFamily(
        "penstock_job_request_duration_seconds",
        "From the whole request read to its answer made; of a stream, to its beginning. A wait is part of it.",
        labels=["operation"],
    )
    bounds = [*(str(bound) for bound in LATENCY_BOUNDS_S), "+Inf"]
    for operation, latencies in sorted(counters.requests.latencies.items()):
        totals = itertools.accumulate(latencies.buckets)
        latency.add_metric([operation], list(zip(bounds, totals, strict=True)), latencies.sum_s)
    yield from (requests, problems, latency)


def _streams(streams: Streams) -> Iterator[Metric]:
    yield GaugeMetricFamily("penstock_job_streams", "Streams of offers that workers hold.", len(streams))
    yield GaugeMetricFamily(
        "penstock_job_streams_held_back",
        "Streams on which nothing is offered until their workers are heard from.",
        streams.held_back,
    )
    yield CounterMetricFamily(
        "penstock_job_stream_silences",
        "How often a stream was held back because its worker let an offer or a lease lapse.",
        streams.silences,
    )


def _queues(held: Mapping[str, _Held], uncounted: int) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("penstock_queue_jobs", "Jobs of a queue by state.", labels=["queue", "state"])
    in_flight = GaugeMetricFamily(
        "penstock_queue_jobs_in_flight", "Jobs of a queue that are with workers, offered or running.", labels=["queue"]
    )
    oldest = GaugeMetricFamily(
        "penstock_queue_oldest_job_age_seconds",
        "For how long the job has been due that has waited longest for a worker; 0 if none waits.",
        labels=["queue"],
    )
    for queue, what in held.items():
        for state in JobState:
            jobs.add_metric([queue, state.label], what.by_state.get(state, 0))
        in_flight.add_metric([queue], sum(what.by_state.get(state, 0) for state in IN_FLIGHT))
        if what.oldest_due_ms is not None:
            oldest.add_metric([queue], what.oldest_due_ms / SECOND_MS)
    yield from (jobs, in_flight, oldest)
    yield GaugeMetricFamily(
        "penstock_job_queues_uncounted", f"1 if there are more than {QUEUES_COUNTED_MAX} job queues.", uncounted
    )
