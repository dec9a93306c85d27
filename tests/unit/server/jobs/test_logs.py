"""Correlation ids and log lines, from the request to the worker and back."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.server.jobs import origins
from penstock.server.jobs.call import Streamed
from penstock.server.logs import configure_logging
from tests.unit.server.jobs.conftest import QUEUE, Api

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

ID = "order-4711/~"


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.message == message]


@pytest.mark.parametrize("header", ["x_correlation_id", "x_request_id"])
async def test_the_id_of_a_request_goes_with_its_job_to_the_worker(api: Api, header: str) -> None:
    answer = await api.ask("POST", "/v1/jobs", {"queue": QUEUE, "task": "greet"}, **{header: ID})
    assert answer.headers["x-correlation-id"] == ID
    assert (await api.ask("GET", f"/v1/jobs/{answer.json()['id']}")).json()["correlation_id"] == ID
    [offer] = await api.dequeue()
    assert offer["correlation_id"] == ID


@pytest.mark.parametrize("given", ["", " ", "a b", "x" * 201, "a\tb", "\xe9", "a\r\nb"])
async def test_an_id_that_is_not_fit_to_be_written_down_is_replaced(api: Api, given: str) -> None:
    answer = await api.ask("GET", "/v1/queues", x_correlation_id=given)
    assert answer.headers["x-correlation-id"] not in {given, ""}
    answer = await api.ask("GET", "/v1/queues", x_correlation_id=given, x_request_id=ID)
    assert answer.headers["x-correlation-id"] == ID


async def test_every_answer_has_an_id_problems_and_streams_too(api: Api) -> None:
    made = (await api.ask("GET", "/v1/queues")).headers["x-correlation-id"]
    assert (await api.ask("GET", "/v1/queues")).headers["x-correlation-id"] != made
    assert (await api.ask("GET", "/v1/queues/absent", x_correlation_id=ID)).headers["x-correlation-id"] == ID
    stream = await api.open("POST", "/v1/dequeue", {"queues": [QUEUE]}, accept="application/x-ndjson", x_request_id=ID)
    assert isinstance(stream, Streamed)
    assert ("x-correlation-id", ID) in stream.headers
    stream.closed()


async def test_each_job_of_a_batch_or_a_gather_is_logged_with_its_own_id(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [{"queue": QUEUE, "task": "greet", "correlation_id": name} for name in ("of-ada", "of-bob")]
    jobs.append({"queue": QUEUE, "task": "greet"})
    for path, body in (
        ("/v1/jobs/batch", {"jobs": jobs}),
        ("/v1/gathers", {"then": {"queue": QUEUE, "task": "sum"}, "jobs": jobs}),
    ):
        with caplog.at_level(logging.DEBUG, "penstock.server.jobs"):
            await api.ask("POST", path, body, x_correlation_id=ID)
        assert [line["correlation_id"] for line in lines(caplog, "job enqueued")] == ["of-ada", "of-bob", ID]
        caplog.clear()


async def test_one_id_is_in_all_lines_about_a_job(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "penstock.server.jobs"):
        job_id = await api.with_headers(x_correlation_id=ID).enqueue()
        [offer] = await api.dequeue()
        for verb in ("accept", "heartbeat"):
            await api.report(offer["token"], verb)
        complete = {"reports": [{"do": "complete", "token": offer["token"]}]}
        await api.ask("POST", "/v1/leases", complete, x_correlation_id="the-workers-own")
    [enqueued] = lines(caplog, "job enqueued")
    assert (enqueued["correlation_id"], enqueued["job_id"], enqueued["queue"]) == (ID, job_id, QUEUE)
    [offered] = lines(caplog, "job offered")
    assert (offered["correlation_id"], offered["job_id"], offered["attempt"], offered["worker"]) == (ID, job_id, 1, "w")
    reports = lines(caplog, "report")
    assert [(line["report"], line["state"]) for line in reports] == [
        ("accept", "running"),
        ("heartbeat", "running"),
        ("complete", "succeeded"),
    ]
    assert {(line["correlation_id"], line["job_id"], line["attempt"]) for line in reports} == {(ID, job_id, 1)}
    assert reports[-1]["request_id"] == "the-workers-own"


async def test_offers_of_a_stream_are_logged_too(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    job_id = await api.with_headers(x_correlation_id=ID).enqueue()
    with caplog.at_level(logging.DEBUG, "penstock.server.jobs"):
        stream = await api.open("POST", "/v1/dequeue", {"queues": [QUEUE]}, accept="application/x-ndjson")
        assert isinstance(stream, Streamed)
        await anext(stream.chunks)
        await anext(stream.chunks)
        await stream.chunks.aclose()
        stream.closed()
    [offered] = lines(caplog, "job offered")
    assert (offered["correlation_id"], offered["job_id"]) == (ID, job_id)


async def test_failures_and_refusals_are_worth_a_line_by_default(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    await api.with_headers(x_correlation_id=ID).enqueue()
    with caplog.at_level(logging.INFO, "penstock.server.jobs"):
        lease = await api.start()
        await api.report(lease, "fail", {"kind": "Broken", "permanent": True, "message": "hush-hush"})
        await api.report(lease, "complete")
    [failed] = lines(caplog, "report")
    assert (failed["report"], failed["state"], failed["failure"]) == ("fail", "dead", "Broken")
    assert (failed["correlation_id"], failed["levelname"]) == (ID, "INFO")
    [refused] = lines(caplog, "report refused")
    assert (refused["report"], refused["code"], refused["attempt"]) == ("complete", "LeaseLost", 1)
    assert "hush" not in str([record.__dict__ for record in caplog.records])


async def test_a_job_that_another_node_offered_is_logged_with_the_workers_id(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "ORIGINS_MAX", 0)
    await api.enqueue()
    [offer] = await api.dequeue()
    with caplog.at_level(logging.DEBUG, "penstock.server.jobs"):
        await api.report(offer["token"], "accept", x_correlation_id=ID)
    [accepted] = lines(caplog, "report")
    assert accepted["correlation_id"] == ID


def go_down() -> None:
    raise StoreUnavailable("down")


async def test_requests_that_are_turned_away_or_fail_are_worth_a_line(
    api: Api, caplog: pytest.LogCaptureFixture, failpoints: Failpoints
) -> None:
    failpoints.arm("jobs.list_queues.begun", go_down)
    with caplog.at_level(logging.INFO, "penstock.server.jobs"):
        await api.ask("GET", "/v1/queues", x_correlation_id=ID)
        await api.ask("GET", "/v1/queues/absent")
    [line] = lines(caplog, "request")
    assert (line["operation"], line["status"], line["code"]) == ("ListQueues", 503, "store-unavailable")
    assert (line["request_id"], line["levelname"]) == (ID, "WARNING")


async def test_lines_about_jobs_are_written_with_all_their_fields(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    root, noisy = logging.getLogger(), logging.getLogger("uvicorn.error")
    before = (root.handlers, root.level, noisy.level)
    try:
        configure_logging(level="debug", form="json")
        await api.with_headers(x_correlation_id=ID).enqueue()
        await api.report(await api.start(), "fail", {"kind": "Broken"})
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
        noisy.setLevel(before[2])
    told = [json.loads(line) for line in written.getvalue().splitlines() if '"report"' in line]
    assert (
        told[-1].items()
        >= {
            "event": "report",
            "correlation_id": ID,
            "attempt": 1,
            "report": "fail",
            "state": "retrying",
            "failure": "Broken",
        }.items()
    )
