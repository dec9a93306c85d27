"""Metrics of the job service."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.job import Move
from penstock.engine.engine import Engine
from penstock.server.counters import RequestCounters
from penstock.server.jobs import metrics
from penstock.server.jobs.call import Streamed
from penstock.server.jobs.counters import JobCounters
from penstock.server.metrics import Metrics
from penstock.testing import ManualClock
from tests.support.board import Board
from tests.support.job_service import make_queue, parked
from tests.support.job_streams import reader, turns
from tests.unit.server.jobs.conftest import QUEUE, Api

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])


@pytest.fixture
def board(engine: Engine, counted: JobCounters) -> Board:
    return Board(Metrics(engine, RequestCounters(), counted))


async def test_nothing_is_missing_before_anything_happened(board: Board) -> None:
    await board.look()
    for name in ("enqueued", "offered", "returned", "accepted", "completed", "released", "snoozed", "cancelled"):
        assert board.value(f"penstock_jobs_{name}_total") == 0
    for name, label, value in (
        ("refused", "reason", "queue_full"),
        ("refused", "reason", "rate_global"),
        ("refused", "reason", "rate_tenant"),
        ("replayed", "key", "idempotency"),
        ("failed", "kind", "permanent"),
        ("failed", "kind", "transient"),
        ("lost", "outcome", "dead"),
        ("retried", "after", "loss"),
        ("dead", "of", "failure"),
    ):
        assert board.value(f"penstock_jobs_{name}_total", **{label: value}) == 0


async def test_every_move_of_a_job_is_told() -> None:
    told = {step for _, step in metrics._PLAIN.values()}  # noqa: SLF001 - the table is what is checked
    told |= {step for _, _, values in metrics._BY.values() for step in values.values()}  # noqa: SLF001 - as above
    assert set(Move) - told == {Move.COME_DUE}


async def test_the_life_of_jobs_is_counted(api: Api, board: Board) -> None:
    for _ in range(3):
        await api.enqueue()
    await api.report(await api.start(), "complete", {"result": 1})
    await api.report(await api.start(), "fail", {"kind": "Busy"})
    await api.report(await api.start(), "fail", {"kind": "Broken", "permanent": True})
    await board.look()
    for name, number in (("enqueued", 3), ("offered", 3), ("accepted", 3), ("completed", 1), ("returned", 0)):
        assert board.value(f"penstock_jobs_{name}_total") == number
    assert board.value("penstock_jobs_failed_total", kind="transient") == 1
    assert board.value("penstock_jobs_failed_total", kind="permanent") == 1
    assert board.value("penstock_jobs_retried_total", after="failure") == 1
    assert board.value("penstock_jobs_dead_total", of="failure") == 1


async def test_a_lost_attempt_is_counted_where_it_is_noticed(api: Api, board: Board, clock: ManualClock) -> None:
    await api.enqueue()
    await api.start()
    await clock.advance(seconds=31)
    await api.dequeue()
    await board.look()
    assert board.value("penstock_jobs_lost_total", outcome="retrying") == 1
    assert board.value("penstock_jobs_retried_total", after="loss") == 1


async def test_jobs_that_did_not_become_new_ones_are_counted_by_why(api: Api, board: Board) -> None:
    settings = {"depth_max": 2, "rate_per_tenant": {"per_second": 0.001, "burst": 1}}
    await api.ask("PUT", f"/v1/queues/{QUEUE}", {"settings": settings})
    await api.enqueue(unique_key="u", idempotency_key="k", tenant="a")
    new = {"queue": QUEUE, "task": "greet"}
    for fields in ({"tenant": "a", "unique_key": "u"}, {"tenant": "a"}, {"tenant": "b"}, {"tenant": "c"}):
        await api.ask("POST", "/v1/jobs", {**new, **fields})
    batch = [{**new, "tenant": "a", "unique_key": "u", "idempotency_key": "k"}, {**new, "tenant": "d"}]
    await api.ask("POST", "/v1/jobs/batch", {"jobs": batch})
    await board.look()
    assert board.value("penstock_jobs_enqueued_total") == 2
    assert board.value("penstock_jobs_replayed_total", key="unique") == 1
    assert board.value("penstock_jobs_replayed_total", key="idempotency") == 1
    assert board.value("penstock_jobs_refused_total", reason="rate_tenant") == 1
    assert board.value("penstock_jobs_refused_total", reason="queue_full") == 2
    assert board.value("penstock_jobs_refused_total", reason="rate_global") == 0


async def test_requests_are_counted_by_operation_status_and_type_of_problem(api: Api, board: Board) -> None:
    await api.enqueue()
    await api.enqueue()
    await api.ask("GET", "/v1/queues/absent")
    await api.ask("POST", "/v1/jobs", {"queue": QUEUE})
    await board.look()
    assert board.value("penstock_job_requests_total", operation="EnqueueJob", status="202") == 2
    assert board.value("penstock_job_requests_total", operation="EnqueueJob", status="422") == 1
    assert board.value("penstock_job_requests_total", operation="GetQueue", status="404") == 1
    assert board.value("penstock_job_problems_total", type="queue-not-found") == 1
    assert board.value("penstock_job_problems_total", type="invalid") == 1
    assert board.value("penstock_job_request_duration_seconds_count", operation="EnqueueJob") == 3
    assert board.value("penstock_job_request_duration_seconds_bucket", operation="EnqueueJob", le="+Inf") == 3


async def test_queues_are_told_by_what_they_hold(api: Api, board: Board, clock: ManualClock) -> None:
    for _ in range(4):
        await api.enqueue()
    await api.enqueue(delay_ms=60_000)
    await api.report(await api.start(), "complete")
    await api.start()
    await api.dequeue()
    await clock.advance(seconds=5)
    await board.look()
    held = {state: board.value("penstock_queue_jobs", queue=QUEUE, state=state) for state in STATES}
    assert held == {"scheduled": 1, "queued": 1, "offered": 1, "running": 1, "succeeded": 1, "dead": 0}
    assert board.value("penstock_queue_jobs_in_flight", queue=QUEUE) == 2
    assert board.value("penstock_queue_oldest_job_age_seconds", queue=QUEUE) == 5
    assert board.value("penstock_job_queues_uncounted") == 0


STATES = ("scheduled", "queued", "offered", "running", "succeeded", "dead")


async def test_queues_beyond_the_cap_are_told_together(api: Api, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "QUEUES_LABELLED_MAX", 2)
    monkeypatch.setattr(metrics, "QUEUES_COUNTED_MAX", 4)
    for number in range(4):
        await api.enqueue(f"q{number}")
    await board.look()
    assert board.labels("penstock_queue_jobs", "queue") == {"q0", "q1", metrics.OTHERS}
    assert board.value("penstock_queue_jobs", queue=metrics.OTHERS, state="queued") == 2
    assert board.labels("penstock_queue_oldest_job_age_seconds", "queue") == {"q0", "q1"}
    assert board.value("penstock_job_queues_uncounted") == 0
    await api.enqueue("q4")
    await board.look()
    assert board.value("penstock_job_queues_uncounted") == 1


async def test_workers_are_counted_while_they_are_connected(api: Api, board: Board, engine: Engine) -> None:
    stream = await api.open("POST", "/v1/dequeue", {"queues": [QUEUE]}, accept="application/x-ndjson")
    assert isinstance(stream, Streamed)
    poll = asyncio.create_task(api.ask("POST", "/v1/dequeue", {"queues": [QUEUE], "wait_ms": 20_000}))
    await parked(engine.jobs, 1)
    await board.look()
    assert board.value("penstock_job_streams") == 1
    assert board.value("penstock_job_polls_waiting") == 1
    stream.closed()
    engine.jobs.end_waits()
    await poll
    await board.look()
    assert board.value("penstock_job_streams") == 0
    assert board.value("penstock_job_polls_waiting") == 0


async def test_streams_that_are_held_back_are_counted(
    api: Api, board: Board, engine: Engine, clock: ManualClock
) -> None:
    await board.look()
    assert board.value("penstock_job_streams_held_back") == 0
    assert board.value("penstock_job_stream_silences_total") == 0
    await make_queue(engine.jobs, QUEUE, offer_ms=5_000)
    await api.enqueue()
    async with reader(engine.jobs, 1) as stream:
        await stream.next()
        waiting = stream.reading()
        await turns()
        await clock.advance(ms=5_000)
        await waiting
        await board.look()
        assert board.value("penstock_job_streams_held_back") == 1
        assert board.value("penstock_job_stream_silences_total") == 1
        stream.stream.add_credit(0)
        await board.look()
        assert board.value("penstock_job_streams_held_back") == 0
        assert board.value("penstock_job_stream_silences_total") == 1
