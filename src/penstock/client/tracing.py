"""OpenTelemetry, where the application uses it: jobs carry the trace of who enqueued them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACER = "penstock"


def tracing() -> bool:
    """Return whether the application uses OpenTelemetry."""
    return "opentelemetry.trace" in sys.modules


def traceparent() -> str | None:
    """Return the trace that goes on here, as W3C writes it; None where there is none.

    An application that traces has imported the API, so nothing is imported here.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@contextmanager
def attempt_span(name: str, enqueuer: str | None, fields: dict[str, Any]) -> Iterator[Any]:
    """Trace an attempt in a span of its own, linked to the trace of who enqueued the job; yield it, or None."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        yield None
        return
    context = _context(trace, enqueuer)
    links = [] if context is None else [trace.Link(context)]
    tracer = trace.get_tracer(TRACER)
    with tracer.start_as_current_span(name, kind=trace.SpanKind.CONSUMER, links=links, attributes=fields) as span:
        yield span


def _context(trace: Any, written: str | None) -> Any:  # noqa: ANN401 - of a module that may not be installed
    """Read a traceparent; None if it is none."""
    parts = (written or "").split("-")
    if len(parts) != 4 or [len(part) for part in parts] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    except ValueError:
        return None
    context = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return context if context.is_valid else None
