"""Where spans go: set up from OpenTelemetry's own environment variables, if they ask for it.

OpenTelemetry is an extra, and is loaded only where somebody collects spans.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from penstock.server.config import StartFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.jobs.tracing import Tracing

EXPORTERS = "OTEL_TRACES_EXPORTER"
PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"
_API = "opentelemetry.trace"
_GROUP = "opentelemetry_traces_exporter"
_SERVICE = "service.name"


def set_up_tracing() -> Callable[[], None]:
    """Have this process export its spans as the environment says, and return what ends that, which sends the last ones.

    Nothing is done where nobody asks for it, or where spans are collected already (`opentelemetry-instrument`).
    """
    names = [name for text in os.environ.get(EXPORTERS, "").split(",") if (name := text.strip()) not in {"", "none"}]
    if not names:
        return _nothing
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to load, as is OpenTelemetry

    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra, for those who ask for it
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ImportError:
        raise _missing(EXPORTERS) from None
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _nothing
    named = "OTEL_SERVICE_NAME" in os.environ or _SERVICE in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else {_SERVICE: "penstock"}))
    for name in names:
        found = next(iter(entry_points(group=_GROUP, name=name)), None)
        if found is None:
            raise StartFailure(f"{EXPORTERS} names {name!r}, and no such exporter is installed.")
        provider.add_span_processor(BatchSpanProcessor(found.load()()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def process_tracing() -> Tracing | None:
    """Return the tracing that this process is set up for; None if spans would come to nothing."""
    # Whoever collects spans has loaded OpenTelemetry, or names the provider that it is to load.
    if _API not in sys.modules and PROVIDER not in os.environ:
        return None
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra

        from penstock.server.jobs.tracing import Tracing  # noqa: PLC0415 - it needs the extra
    except ImportError:
        raise _missing(PROVIDER) from None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Tracing(provider)


def _missing(variable: str) -> StartFailure:
    return StartFailure(f"{variable} is set, and OpenTelemetry is not installed: pip install 'penstock[otel]'.")


def _nothing() -> None:
    pass
