"""Where spans go: set up from OpenTelemetry's own environment variables, if they ask for it."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from opentelemetry import trace

from penstock.server.config import StartFailure

if TYPE_CHECKING:
    from collections.abc import Callable

EXPORTERS = "OTEL_TRACES_EXPORTER"
_GROUP = "opentelemetry_traces_exporter"
_SERVICE = "service.name"


def set_up_tracing() -> Callable[[], None]:
    """Have this process export its spans as the environment says, and return what ends that, which sends the last ones.

    Nothing is done where nobody asks for it, or where spans are collected already (`opentelemetry-instrument`).
    """
    names = [name for text in os.environ.get(EXPORTERS, "").split(",") if (name := text.strip()) not in {"", "none"}]
    if not names or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _nothing
    try:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra, for those who ask for it
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ImportError:
        raise StartFailure(
            f"{EXPORTERS} is set, and OpenTelemetry's SDK is not installed: pip install 'penstock[otel]'."
        ) from None
    named = "OTEL_SERVICE_NAME" in os.environ or _SERVICE in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else {_SERVICE: "penstock"}))
    for name in names:
        found = next(iter(entry_points(group=_GROUP, name=name)), None)
        if found is None:
            raise StartFailure(f"{EXPORTERS} names {name!r}, and no such exporter is installed.")
        provider.add_span_processor(BatchSpanProcessor(found.load()()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _nothing() -> None:
    pass
