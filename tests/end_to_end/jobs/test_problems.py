"""What goes wrong is told in one form, with the field that is wrong; and a flood is turned away."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for one call here.
import pytest

from tests.end_to_end.jobs.api import Api
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer

CONNECTIONS = 20
UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind", "field"),
    [
        ("POST", "/v1/jobs", b"{", 400, "malformed", None),
        ("POST", "/v1/jobs", b"", 422, "invalid", "task"),
        ("POST", "/v1/jobs", b'{"queue": "q", "task": "t", "priority": 10}', 422, "invalid", "priority"),
        ("POST", "/v1/jobs", b'{"queue": "no spaces", "task": "t"}', 422, "invalid", "queue"),
        ("POST", "/v1/jobs", b'{"queue": "q\\n", "task": "t"}', 422, "invalid", "queue"),
        ("POST", "/v1/jobs", b'{"queue": "q", "task": "\\u0000"}', 422, "invalid", "task"),
        ("POST", "/v1/jobs", b'{"queue": "q", "task": "t", "payload": "\xff"}', 400, "malformed", None),
        ("POST", "/v1/jobs", b'{"queue": "q", "task": "t", "x": 1}', 422, "invalid", "x"),
        ("POST", "/v1/jobs/batch", b'{"jobs": []}', 422, "invalid", "jobs"),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "start_rate": {"key": "k"}}',
            422,
            "invalid",
            "start_rate.per_second",
        ),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "start_rate": {"per_second": 1}}',
            422,
            "invalid",
            "start_rate.key",
        ),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "start_rate": {"key": "", "per_second": 1}}',
            422,
            "invalid",
            "start_rate.key",
        ),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "start_rate": {"key": "k", "per_second": 0}}',
            422,
            "invalid",
            "start_rate.per_second",
        ),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "start_rate": {"key": "k", "per_second": 1e9}}',
            422,
            "invalid",
            "start_rate.per_second",
        ),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "start_rate": {"key": "k", "per_second": 1, "burst": 0}}',
            422,
            "invalid",
            "start_rate.burst",
        ),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "start_rate": {"key": "k", "per_second": 1, "x": 1}}',
            422,
            "invalid",
            "start_rate.x",
        ),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "unique_key": "u", "on_duplicate": "drop"}',
            422,
            "invalid",
            "on_duplicate",
        ),
        ("POST", "/v1/jobs", b'{"queue": "q", "task": "t", "on_duplicate": "replace"}', 422, "invalid", "on_duplicate"),
        (
            "POST",
            "/v1/jobs",
            b'{"queue": "q", "task": "t", "id": "0190F0F0-AAAA-7BBB-8CCC-DDDDEEEEFFFF"}',
            422,
            "invalid",
            "id",
        ),
        ("POST", "/v1/dequeue", b'{"queues": ["q"], "tasks": [""]}', 422, "invalid", "tasks[0]"),
        ("POST", "/v1/dequeue", b'{"queues": ["q"], "tasks": "t"}', 422, "invalid", "tasks"),
        (
            "POST",
            "/v1/dequeue",
            b'{"queues": ["q"], "tasks": [%b]}' % b",".join([b'"t"'] * 501),
            422,
            "invalid",
            "tasks",
        ),
        ("POST", "/v1/dequeue", b'{"queues": ["q"], "request_id": ""}', 422, "invalid", "request_id"),
        ("PUT", "/v1/queues/q", b'{"aging_ms": -1}', 422, "invalid", "aging_ms"),
        ("PUT", "/v1/queues/q", b'{"aging_ms": 86400001}', 422, "invalid", "aging_ms"),
        (
            "PUT",
            "/v1/queues/q",
            b'{"start_rates": {"k": {"per_second": 0}}}',
            422,
            "invalid",
            "start_rates",
        ),
        (
            "PUT",
            "/v1/queues/q",
            b'{"start_rates": {"k": {"per_second": 1, "burst": 0}}}',
            422,
            "invalid",
            "start_rates",
        ),
        ("PUT", "/v1/queues/q", b'{"start_rates": {"": {"per_second": 1}}}', 422, "invalid", "start_rates"),
        ("PUT", "/v1/queues/q", b'{"start_rates": {"k": {}}}', 422, "invalid", "start_rates"),
        ("POST", "/v1/dequeue", b'{"queues": []}', 422, "invalid", "queues"),
        ("POST", "/v1/dequeue", b'{"queues": ["q"], "count": 501}', 422, "invalid", "count"),
        ("POST", "/v1/leases/x/accept", b"", 404, "lease-not-found", None),
        ("POST", "/v1/leases/x/explode", b"", 404, "not-found", None),
        ("GET", f"/v1/jobs/{UNKNOWN}", b"", 404, "job-not-found", None),
        ("GET", f"/v1/jobs/{UNKNOWN}/result?wait=x", b"", 422, "invalid", "wait"),
        ("GET", "/v1/jobs?state=asleep", b"", 422, "invalid", "state"),
        ("GET", "/v1/jobs?limit=501", b"", 422, "invalid", "limit"),
        ("GET", "/v1/jobs?cursor=x", b"", 422, "invalid", "cursor"),
        ("GET", "/v1/jobs?tag=%00", b"", 422, "invalid", "tag"),
        ("GET", "/v1/queues/none", b"", 404, "queue-not-found", None),
        ("GET", f"/v1/operations/{UNKNOWN}", b"", 404, "operation-not-found", None),
        ("PUT", "/v1/schedules/x", b'{"queue": "q", "job": {"task": "t"}}', 422, "schedule-invalid", None),
        ("GET", "/v1/nothing", b"", 404, "not-found", None),
        ("DELETE", "/v1/jobs", b"", 405, "method-not-allowed", None),
        ("POST", "/v1/jobs/", b"{}", 404, "not-found", None),
        ("GET", "/v1/jobs?stat=dead", b"", 422, "invalid", "stat"),
        ("POST", "/v1/dequeue?count=2", b'{"queues": ["q"]}', 422, "invalid", "count"),
        ("POST", "/enqueue", b'{"priority": 3}', 422, "invalid", "priority"),
        ("POST", "/dlq/requeue", b'{"job": "x"}', 422, "invalid", "job"),
    ],
)
def test_problems_are_told_in_one_form(
    api: Api, method: str, path: str, body: bytes, status: int, kind: str, field: str | None
) -> None:
    answer = api.client.request(method, path, content=body)
    told = answer.json()
    assert (answer.status_code, told["status"]) == (status, status), told
    assert answer.headers["content-type"] == "application/problem+json"
    assert (told["type"], told.get("field")) == (f"urn:penstock:problem:{kind}", field)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/dequeue", "/v1/leases/x/complete", "/v1/jobs/batch", "/enqueue"])
def test_a_request_that_is_too_large_is_told_so_in_the_same_form(api: Api, path: str) -> None:
    answer = api.client.post(path, content=b" " * (8 * 1_048_576 + 1))
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:penstock:problem:too-large")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_method_that_is_not_done_is_refused_with_those_that_are(api: Api) -> None:
    assert api.client.delete("/v1/jobs").headers["allow"] == "GET, POST"
    assert api.client.head("/v1/queues/none").headers["allow"] == "DELETE, GET, PATCH, PUT"


def test_a_header_of_sqs_does_not_make_it_another_request(api: Api) -> None:
    api.make_queue()
    job_id = api.enqueue()
    headers = {"X-Amz-Target": "AmazonSQS.ReceiveMessage", "Accept": "application/x-ndjson"}
    body = {"queues": [api.queue]}
    with api.client.stream("POST", "/v1/dequeue", json=body, headers=headers) as stream:
        lines = stream.iter_lines()
        assert '"stream"' in next(lines)
        assert job_id in next(lines)
    assert api.client.post(f"/v1/jobs/{job_id}/cancel", headers=headers).status_code == 200
    with api.client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as events:
        assert "event: end" in "".join(events.iter_text())


def test_a_payload_a_result_and_a_request_have_limits(api: Api) -> None:
    api.make_queue()
    large = {"queue": api.queue, "task": "t", "payload": "x" * 1_048_576}
    answer = api.post("/v1/jobs", large)
    assert (answer.status_code, answer.json()["field"]) == (413, "payload")
    assert api.post("/v1/jobs/batch", {"jobs": [large]}).json()["results"][0]["status"] == 413
    whole = api.post("/v1/jobs/batch", {"jobs": [large] * 9})
    assert (whole.status_code, whole.json()["type"]) == (413, "urn:penstock:problem:too-large")
    api.enqueue()
    [offer] = api.dequeue()
    api.report(offer["token"], "accept")
    assert api.report(offer["token"], "complete", {"result": "x" * 1_048_576}).status_code == 413
    assert api.report(offer["token"], "complete", {"result": "x"}).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"depth_max": 20}, "queue_full"),
        ({"rate": {"per_second": 0.001, "burst": 20}}, "rate_global"),
        ({"rate_per_tenant": {"per_second": 0.001, "burst": 20}}, "rate_tenant"),
    ],
)
def test_a_flood_is_turned_away_with_a_reason_and_no_memory_of_it(
    api: Api, shared_server: RunningServer, settings: dict[str, Any], reason: str
) -> None:
    api.make_queue(**settings)
    process = psutil.Process(shared_server.process.pid)

    async def flood(count: int) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=CONNECTIONS)
        async with httpx.AsyncClient(
            base_url=shared_server.url, limits=limits, timeout=STOP_TIMEOUT_S, trust_env=False
        ) as client:
            body = {"queue": api.queue, "task": "t", "payload": "x" * 200_000, "tenant": "one"}
            return await asyncio.gather(*(client.post("/v1/jobs", json=body) for _ in range(count)))

    answers = asyncio.run(flood(50))
    before_bytes = process.memory_info().rss
    answers += asyncio.run(flood(300))
    grown_bytes = process.memory_info().rss - before_bytes
    # Of sixty megabytes that were sent nothing is kept; what is left over is the allocator's.
    assert grown_bytes < 40_000_000
    accepted = Counter(answer.status_code for answer in answers)[202]
    # Rates are exact; the bound of a queue that is not strict may be exceeded by what comes at the same time.
    assert 20 <= accepted <= (20 + CONNECTIONS if reason == "queue_full" else 20)
    refused = [answer for answer in answers if answer.status_code != 202]
    assert {(answer.status_code, answer.json()["reason"]) for answer in refused} == {(429, reason)}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert all(answer.json()["retry_after_ms"] >= 1 for answer in refused)
