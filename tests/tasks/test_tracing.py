"""Spans of attempts, linked to those of who enqueued them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock import Penstock, Retry, errors
from tests.tasks.working import PATIENCE_S, working


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


async def test_an_attempt_is_a_span_that_links_to_its_enqueuers(
    app: Penstock, name: str, spans: InMemorySpanExporter
) -> None:
    @app.task(name=name, queue=name)
    async def work() -> str:
        return f"{trace.get_current_span().get_span_context().span_id:016x}"

    async with working(app):
        with trace.get_tracer("test").start_as_current_span("request") as request:
            job = await work.enqueue()
        inside = await job.result(PATIENCE_S)
    [span] = [one for one in spans.get_finished_spans() if one.name == f"run {name}"]
    assert span.context is not None
    assert f"{span.context.span_id:016x}" == inside
    assert span.attributes is not None
    assert span.attributes["penstock.job"] == job.id
    [link] = span.links
    assert link.context.trace_id == request.get_span_context().trace_id


async def test_an_attempt_that_fails_is_a_span_with_the_error(
    app: Penstock, name: str, spans: InMemorySpanExporter
) -> None:
    @app.task(name=name, queue=name, retry=Retry(1))
    async def work() -> None:
        raise RuntimeError("no")

    async with working(app):
        with pytest.raises(errors.JobDead):
            await (await work.enqueue()).result(PATIENCE_S)
    [span] = [one for one in spans.get_finished_spans() if one.name == f"run {name}"]
    assert not span.status.is_ok
    assert [event.name for event in span.events] == ["exception"]
