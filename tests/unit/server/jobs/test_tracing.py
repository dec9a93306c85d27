"""Spans of the job service, and how they are linked through the queue."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.server.exporting import process_tracing
from penstock.server.jobs import origins
from penstock.server.jobs.call import Streamed
from penstock.server.jobs.tracing import Tracing
from tests.unit.server.jobs.conftest import QUEUE, Api

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WORKER = "00-11111111111111111111111111111111-2222222222222222-01"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans: InMemorySpanExporter) -> Tracing | None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider)


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def linked(span: ReadableSpan) -> list[str]:
    return [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in span.links]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_job_with_a_trace_of_its_own_keeps_it(api: Api, spans: InMemorySpanExporter) -> None:
    await api.with_headers(traceparent=WORKER).enqueue(traceparent=CALLER)
    [offer] = await api.dequeue()
    assert offer["traceparent"] == CALLER
    [receive] = named(spans, "receive")
    assert linked(receive) == [CALLER[3:-3]]


async def test_a_job_carries_the_span_that_enqueued_it_and_its_completion_links_to_that(
    api: Api, spans: InMemorySpanExporter
) -> None:
    job_id = await api.with_headers(traceparent=CALLER).enqueue()
    [send] = named(spans, f"send {QUEUE}")
    assert (send.kind, attributes(send)["messaging.destination.name"]) == (SpanKind.PRODUCER, QUEUE)
    assert send.parent is not None
    assert f"00-{send.parent.trace_id:032x}-{send.parent.span_id:016x}-01" == CALLER
    assert (await api.ask("GET", f"/v1/jobs/{job_id}")).json()["traceparent"] == traceparent(send)

    [offer] = await api.dequeue()
    assert offer["traceparent"] == traceparent(send)
    [receive] = named(spans, "receive")
    assert receive.kind is SpanKind.CONSUMER
    assert linked(receive) == [traceparent(send)[3:-3]]

    for verb in ("accept", "heartbeat", "complete"):
        await api.report(offer["token"], verb, traceparent=WORKER)
    assert named(spans, "settle heartbeat") == []
    [complete] = named(spans, "settle complete")
    assert linked(complete) == [traceparent(send)[3:-3]]
    assert complete.parent is not None
    assert f"{complete.parent.span_id:016x}" == "2222222222222222"
    told = attributes(complete)
    assert (told["messaging.message.id"], told["penstock.attempt"], told["penstock.state"]) == (job_id, 1, "succeeded")


async def test_a_job_that_another_node_offered_is_linked_as_well(
    api: Api, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "ORIGINS_MAX", 0)
    await api.enqueue()
    await api.report(await api.start(), "complete")
    [send], [complete] = named(spans, f"send {QUEUE}"), named(spans, "settle complete")
    assert linked(complete) == [traceparent(send)[3:-3]]


async def test_a_batch_is_one_span_that_all_its_jobs_carry(api: Api, spans: InMemorySpanExporter) -> None:
    new = {"queue": QUEUE, "task": "greet"}
    await api.ask("POST", "/v1/jobs/batch", {"jobs": [new, {**new, "queue": "other"}, new]})
    [send] = named(spans, "send")
    assert attributes(send)["messaging.batch.message_count"] == 3
    assert len(send.events) == 3
    offers = await api.dequeue(2)
    assert {offer["traceparent"] for offer in offers} == {traceparent(send)}
    for verb in ("accept", "complete"):
        await api.ask("POST", "/v1/leases", {"reports": [{"do": verb, "token": it["token"]} for it in offers]})
    assert [linked(span) for span in named(spans, "settle complete")] == [[traceparent(send)[3:-3]]] * 2


async def test_offers_of_a_stream_are_linked_too(api: Api, spans: InMemorySpanExporter) -> None:
    await api.enqueue()
    stream = await api.open("POST", "/v1/dequeue", {"queues": [QUEUE]}, accept="application/x-ndjson")
    assert isinstance(stream, Streamed)
    await anext(stream.chunks)
    await anext(stream.chunks)
    await stream.chunks.aclose()
    stream.closed()
    [send], [receive] = named(spans, f"send {QUEUE}"), named(spans, "receive")
    assert linked(receive) == [traceparent(send)[3:-3]]


async def test_a_poll_that_finds_nothing_makes_no_span(api: Api, spans: InMemorySpanExporter) -> None:
    await api.dequeue()
    assert spans.get_finished_spans() == ()


def go_down() -> None:
    raise StoreUnavailable("down")


async def test_what_goes_wrong_is_told(api: Api, spans: InMemorySpanExporter, failpoints: Failpoints) -> None:
    await api.enqueue()
    lease = await api.start()
    await api.report(lease, "fail", {"kind": "Broken"})
    await api.report(lease, "complete")
    [failed], [refused] = named(spans, "settle fail"), named(spans, "settle complete")
    assert attributes(failed)["error.type"] == "Broken"
    assert (failed.status.status_code, refused.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    failpoints.arm("jobs.report.begun", go_down)
    await api.report(lease, "release")
    failpoints.arm("jobs.enqueue.begun", go_down)
    await api.ask("POST", "/v1/jobs", {"queue": QUEUE, "task": "greet"})
    for name in ("settle release", f"send {QUEUE}"):
        span = named(spans, name)[-1]
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "down")


async def test_a_trace_that_is_not_sampled_is_carried_on_all_the_same(api: Api) -> None:
    quiet = Tracing(TracerProvider(sampler=ALWAYS_OFF))
    span = quiet.send({"traceparent": CALLER}, QUEUE, 1)
    assert not span.is_recording()
    assert span.get_span_context().trace_id == int(CALLER[3:35], 16)


class TestWithoutAnSdk:
    @pytest.fixture
    def tracing(self) -> Tracing | None:
        return process_tracing()

    async def test_nothing_is_traced_and_the_callers_trace_goes_with_the_job(
        self, api: Api, tracing: Tracing | None
    ) -> None:
        assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        assert tracing is None
        await api.with_headers(traceparent=CALLER).enqueue()
        [offer] = await api.dequeue()
        assert offer["traceparent"] == CALLER
