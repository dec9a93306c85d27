"""The observer: counts, logs and traces what callers and workers do, with one correlation id all the way."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from penstock.domain.errors import PenstockError
from penstock.domain.job import TERMINAL
from penstock.domain.job_errors import JobDoesNotExist
from penstock.server.jobs.correlation import TRACEPARENT
from penstock.server.jobs.counters import JobCounters
from penstock.server.jobs.origins import Origin, Origins
from penstock.store.job_port import Fail, Heartbeat, Publish

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from opentelemetry.trace import Span

    from penstock.domain.job import Offer
    from penstock.engine.jobs.enqueueing import Stored
    from penstock.engine.jobs.looking import Looking
    from penstock.server.jobs.call import Call
    from penstock.server.jobs.tracing import Tracing
    from penstock.store.job_port import Report, Reported

_log = logging.getLogger(__name__)


class Observer:
    """Sees what goes by. Without `tracing` there are no spans, and nothing is done for them."""

    def __init__(self, looking: Looking, counters: JobCounters | None = None, tracing: Tracing | None = None) -> None:
        self.counters = counters or JobCounters()
        self._looking = looking
        self._tracing = tracing
        self.origins = Origins()

    @property
    def tracing(self) -> bool:
        """Whether there are spans."""
        return self._tracing is not None

    def sending(self, call: Call, queue: str, count: int = 1) -> Sending:
        """Begin to watch an enqueueing; used with `with`."""
        span = None if self._tracing is None else self._tracing.send(call.request.headers, queue, count)
        return Sending(self.counters, call, self._tracing, span)

    def offered(self, offers: Sequence[Offer], worker: str, headers: Mapping[str, str]) -> None:
        """Take in what a worker is offered."""
        for offer in offers:
            self.origins.remember(offer)
        if offers and self._tracing is not None:
            self._tracing.receive(headers, offers, worker)
        if _log.isEnabledFor(logging.DEBUG):
            for offer in offers:
                lease = offer.lease
                told = {"correlation_id": offer.correlation_id, "job_id": lease.job_id, "attempt": lease.attempt}
                _log.debug("job offered", extra={**told, "queue": offer.queue, "worker": worker})

    def reporting(self, call: Call, reports: Sequence[Report]) -> Reporting:
        """Begin to watch reports of a worker; used with `with`."""
        tracing = self._tracing
        # Heartbeats are too many and say nothing; events end no attempt.
        spans = (
            {}
            if tracing is None
            else {
                place: tracing.settle(call.request.headers, report)
                for place, report in enumerate(reports)
                if not isinstance(report, Heartbeat | Publish)
            }
        )
        return Reporting(self, call, reports, tracing, spans)

    def log_report(self, call: Call, report: Report, answer: Reported | PenstockError) -> None:
        refused = isinstance(answer, PenstockError)
        level = logging.INFO if refused or isinstance(report, Fail) else logging.DEBUG
        if not _log.isEnabledFor(level):
            return
        origin = self.origins.find(report.lease.job_id)
        told: dict[str, object] = {
            "request_id": call.correlation_id,
            "correlation_id": call.correlation_id if origin is None else origin.correlation_id,
            "job_id": report.lease.job_id,
            "attempt": report.lease.attempt,
            "report": type(report).__name__.lower(),
        }
        if isinstance(report, Fail):
            told["failure"] = report.failure.kind
        if isinstance(answer, PenstockError):
            told["code"] = type(answer).__name__
        else:
            told["state"] = answer.state.label
        _log.log(level, "report refused" if refused else "report", extra=told)

    async def origin_of(self, job_id: str) -> Origin | None:
        """Find where a job came from, also if another node offered it."""
        known = self.origins.find(job_id)
        if known is not None:
            return known
        try:
            job = await self._looking.job(job_id)
        except PenstockError as error:
            if not isinstance(error, JobDoesNotExist):
                _log.debug("the origin of job %s is not known: %s", job_id, error.reason)
            return None
        return Origin(job.queue, job.correlation_id, job.trace)


class Sending:
    """One enqueueing, of one job or several. `trace` is what the jobs shall carry."""

    __slots__ = ("_call", "_counters", "_span", "_tracing", "trace")

    def __init__(self, counters: JobCounters, call: Call, tracing: Tracing | None, span: Span | None) -> None:
        self._counters = counters
        self._call = call
        self._tracing = tracing
        self._span = span
        self.trace = (
            call.request.headers.get(TRACEPARENT) if tracing is None or span is None else tracing.traceparent_of(span)
        )

    def __enter__(self) -> Self:
        return self

    def became(self, outcome: Stored | PenstockError, correlation_id: str = "") -> None:
        """Take in what became of one job, which may have a correlation id of its own."""
        self._counters.count_enqueued(outcome)
        if isinstance(outcome, PenstockError):
            return
        new = not (outcome.replayed or outcome.duplicate)
        if self._span is not None:
            self._span.add_event("stored", {"messaging.message.id": outcome.job_id, "penstock.new": new})
        if _log.isEnabledFor(logging.DEBUG):
            correlation_id = correlation_id or self._call.correlation_id
            told = {"correlation_id": correlation_id, "job_id": outcome.job_id, "queue": outcome.queue}
            _log.debug("job enqueued" if new else "job found", extra={**told, "state": outcome.state.label})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, PenstockError):
            self.became(error)
        if self._tracing is not None and self._span is not None:
            self._tracing.end(self._span, error)


class Reporting:
    """Reports of a worker on their way into the store."""

    __slots__ = ("_call", "_observer", "_reports", "_spans", "_tracing")

    def __init__(
        self,
        observer: Observer,
        call: Call,
        reports: Sequence[Report],
        tracing: Tracing | None,
        spans: dict[int, Span],
    ) -> None:
        self._observer = observer
        self._call = call
        self._reports = reports
        self._tracing = tracing
        self._spans = spans

    def __enter__(self) -> Self:
        return self

    async def answered(self, answers: Sequence[Reported | PenstockError]) -> None:
        """Take in what the worker is told."""
        for place, (report, answer) in enumerate(zip(self._reports, answers, strict=True)):
            self._observer.log_report(self._call, report, answer)
            job_id = report.lease.job_id
            if self._tracing is not None and place in self._spans:
                self._tracing.settled(self._spans[place], report, answer, await self._observer.origin_of(job_id))
            if not isinstance(answer, PenstockError) and answer.state in TERMINAL:
                self._observer.origins.forget(job_id)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tracing is not None:
            for span in self._spans.values():
                self._tracing.end(span, error)
