"""Traces: spans for what is asked of the job service, linked through the queue by the trace that a job carries.

This needs OpenTelemetry, an extra. So only `exporting` imports it, where somebody collects spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock import __version__
from penstock.domain.errors import PenstockError
from penstock.server.jobs.correlation import TRACEPARENT
from penstock.store.job_port import Fail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.trace import Span, SpanContext

    from penstock.domain.job import Offer
    from penstock.server.jobs.origins import Origin
    from penstock.store.job_port import Report, Reported

_SYSTEM = {"messaging.system": "penstock"}
_W3C = TraceContextTextMapPropagator()


class Tracing:
    """Makes spans. It exists only where somebody collects them."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("penstock", __version__)

    def send(self, headers: Mapping[str, str], queue: str, count: int) -> Span:
        """Begin the span of an enqueueing; its caller's span, if they tell of one, is the parent."""
        attributes: dict[str, str | int] = {**_SYSTEM, "messaging.operation.type": "send"}
        if queue:
            attributes["messaging.destination.name"] = queue
        if count > 1:
            attributes["messaging.batch.message_count"] = count
        return self._tracer.start_span(
            f"send {queue}".rstrip(), _W3C.extract(headers), kind=SpanKind.PRODUCER, attributes=attributes
        )

    def receive(self, headers: Mapping[str, str], offers: Sequence[Offer], worker: str) -> None:
        """Tell of jobs that are offered to a worker, linked to where each came from."""
        span = self._tracer.start_span(
            "receive",
            _W3C.extract(headers),
            kind=SpanKind.CONSUMER,
            attributes={
                **_SYSTEM,
                "messaging.operation.type": "receive",
                "messaging.batch.message_count": len(offers),
                "messaging.client.id": worker,
            },
            links=[
                Link(context, {"messaging.message.id": offer.lease.job_id})
                for offer in offers
                if (context := context_of(offer.trace)) is not None
            ],
        )
        span.end()

    def settle(self, headers: Mapping[str, str], report: Report) -> Span:
        """Begin the span of a report; the worker's span, if it tells of one, is the parent."""
        verb = type(report).__name__.lower()
        return self._tracer.start_span(
            f"settle {verb}",
            _W3C.extract(headers),
            kind=SpanKind.CONSUMER,
            attributes={
                **_SYSTEM,
                "messaging.operation.type": "settle",
                "messaging.operation.name": verb,
                "messaging.message.id": report.lease.job_id,
                "penstock.attempt": report.lease.attempt,
            },
        )

    @staticmethod
    def settled(span: Span, report: Report, answer: Reported | PenstockError, origin: Origin | None) -> None:
        """Add to a span what a report came to, and link it to where the job came from."""
        if origin is not None:
            span.set_attribute("messaging.destination.name", origin.queue)
            context = context_of(origin.trace)
            if context is not None:
                span.add_link(context)
        if isinstance(report, Fail):
            span.set_attribute("error.type", report.failure.kind)
        if isinstance(answer, PenstockError):
            span.set_status(Status(StatusCode.ERROR, answer.reason))
        else:
            span.set_attribute("penstock.state", answer.state.label)

    @staticmethod
    def end(span: Span, error: BaseException | None) -> None:
        """End a span, as failed if there is an error."""
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, getattr(error, "reason", type(error).__name__)))
        span.end()

    @staticmethod
    def traceparent_of(span: Span) -> str | None:
        """Write a span's place in its trace as a job carries it."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(span))
        return carrier.get(TRACEPARENT)


def context_of(traceparent: str | None) -> SpanContext | None:
    """Read what a job carries; None if it is of no trace."""
    if traceparent is None:
        return None
    context = trace.get_current_span(_W3C.extract({TRACEPARENT: traceparent})).get_span_context()
    return context if context.is_valid else None
