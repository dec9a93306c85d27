"""Tokens of a configuration file, and what is told of jobs, on a real server."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.end_to_end.jobs.api import Api
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer, fail_to_serve

pytestmark = pytest.mark.slow

SHOP, WORKERS, OPERATIONS = "the-token-of-the-shop", "the-token-of-the-workers", "the-token-of-operations"
MONITORING = "the-token-for-monitoring"
FILE = f"""
log_format = "json"
log_level = "debug"

[[tokens]]
name = "shop"
token = "{SHOP}"
scopes = ["enqueue", "read"]
tenant = "acme"

[[tokens]]
name = "workers"
token_sha256 = "{hashlib.sha256(WORKERS.encode()).hexdigest()}"
scopes = ["work"]

[[tokens]]
name = "operations"
token = "{OPERATIONS}"
scopes = ["admin", "read"]
"""


@pytest.fixture
def guarded(store_url: str, tmp_path: Path) -> Iterator[RunningServer]:
    (tmp_path / "penstock.toml").write_text(FILE)
    arguments = ("--config", "penstock.toml", "--port", "0", "--store", store_url)
    with RunningServer(tmp_path, *arguments, PENSTOCK_MONITORING_TOKEN=MONITORING) as server:
        yield server


Asking = Callable[[RunningServer, str | None], Api]


@pytest.fixture
def api() -> Iterator[Asking]:
    """Make clients with a token, or none; they are closed in the end."""
    with contextlib.ExitStack() as stack:

        def ask(server: RunningServer, token: str | None) -> Api:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            client = httpx.Client(base_url=server.url, timeout=STOP_TIMEOUT_S, trust_env=False, headers=headers)
            return Api(stack.enter_context(client), "orders")

        yield ask


def test_each_token_does_its_part_and_nothing_else(guarded: RunningServer, api: Asking) -> None:
    shop, workers, operations = (api(guarded, token) for token in (SHOP, WORKERS, OPERATIONS))
    operations.make_queue()
    enqueued = shop.post("/v1/jobs", {"queue": "orders", "task": "greet"}, X_Correlation_Id="order-1")
    assert (enqueued.status_code, enqueued.headers["x-correlation-id"]) == (202, "order-1")
    job_id = enqueued.json()["id"]
    [offer] = workers.dequeue()
    assert (offer["id"], offer["tenant"], offer["correlation_id"]) == (job_id, "acme", "order-1")
    for verb in ("accept", "complete"):
        assert workers.report(offer["token"], verb).status_code == 200
    assert shop.job(job_id)["state"] == "succeeded"

    for asking, method, path in (
        (shop, "POST", "/v1/dequeue"),
        (shop, "GET", "/v1/queues"),
        (shop, "DELETE", "/v1/queues/orders"),
        (workers, "POST", "/v1/jobs"),
        (workers, "GET", f"/v1/jobs/{job_id}"),
        (operations, "POST", "/v1/jobs/batch"),
        (operations, "POST", f"/v1/leases/{offer['token']}/accept"),
    ):
        answer = asking.client.request(method, path, json={})
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:penstock:problem:access-denied"), path
        assert answer.headers["content-type"] == "application/problem+json"
    assert "'work'" in shop.post("/v1/dequeue").json()["detail"]
    other = shop.post("/v1/jobs", {"queue": "orders", "task": "greet", "tenant": "other"})
    assert other.status_code == 403

    lines = [json.loads(line) for line in guarded.errors.read_text().splitlines()]
    about: list[dict[str, Any]] = [line for line in lines if line.get("correlation_id") == "order-1"]
    assert [line["event"] for line in about] == ["job enqueued", "job offered", "report", "report"]
    assert {line["job_id"] for line in about} == {job_id}
    written = guarded.errors.read_text()
    assert not any(secret in written for secret in (SHOP, WORKERS, OPERATIONS, offer["token"]))


def test_without_a_token_there_are_only_the_documents(guarded: RunningServer, api: Asking) -> None:
    for token in (None, "not-one-of-the-tokens", MONITORING):
        stranger = api(guarded, token)
        for method, path in (
            ("POST", "/v1/jobs"),
            ("GET", "/v1/jobs"),
            ("POST", "/v1/dequeue"),
            ("POST", "/v1/leases/x/accept"),
            ("POST", "/enqueue"),
            ("GET", "/dlq"),
        ):
            answer = stranger.client.request(method, path, json={})
            assert (answer.status_code, answer.json()["type"]) == (401, "urn:penstock:problem:not-authenticated"), path
            assert answer.headers["www-authenticate"].startswith("Bearer")
        streamed = stranger.post("/v1/dequeue", {"queues": ["orders"]}, Accept="application/x-ndjson")
        assert streamed.status_code == 401
        assert stranger.client.get("/docs").status_code == 200
        assert stranger.client.get("/openapi.json").json()["components"]["securitySchemes"]
    # Nor is SQS open where there are tokens and no keys.
    sent = api(guarded, None).client.post("/", params={"Action": "ListQueues"})
    assert (sent.status_code, "MissingAuthenticationToken" in sent.text) == (403, True)


def test_what_jobs_came_to_is_for_holders_of_the_monitoring_token(guarded: RunningServer, api: Asking) -> None:
    monitor = api(guarded, MONITORING)
    api(guarded, SHOP).enqueue()
    assert "penstock_jobs_enqueued_total 1.0" in monitor.client.get("/metrics").text
    [stats] = monitor.client.get("/stats").json()["job_queues"]
    assert (stats["name"], stats["jobs"]["queued"], stats["depth"]) == ("orders", 1, 1)
    for token in (None, OPERATIONS):
        for path in ("/metrics", "/stats"):
            assert api(guarded, token).client.get(path).status_code == 401


def test_a_token_that_is_for_more_than_can_be_kept_apart_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(FILE.replace('["enqueue", "read"]', '["enqueue", "work"]'))
    told = fail_to_serve(tmp_path, "--config", "penstock.toml", "--port", "0", "--store", "memory:")
    assert "The token shop is for one tenant, and the scope work is about all of them." in told
    assert SHOP not in told


def test_spans_go_where_the_environment_says(tmp_path: Path, api: Asking) -> None:
    arguments = ("--port", "0", "--store", "memory:")
    with RunningServer(tmp_path, *arguments, OTEL_TRACES_EXPORTER="console") as server:
        asking = api(server, None)
        job_id = asking.enqueue()
        [offer] = asking.dequeue()
        for verb in ("accept", "complete"):
            asking.report(offer["token"], verb)
        asking.client.close()
        code, written = server.stop()
    assert code == 0
    spans = list(_values(written))
    assert [span["name"] for span in spans] == ["send orders", "receive", "settle accept", "settle complete"]
    sent, completed = spans[0], spans[-1]
    assert completed["attributes"]["messaging.message.id"] == job_id
    assert [link["context"]["span_id"] for link in completed["links"]] == [sent["context"]["span_id"]]
    assert sent["resource"]["attributes"]["service.name"] == "penstock"


def _values(text: str) -> Iterator[dict[str, Any]]:
    """Read values of JSON that follow one another."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:]


def test_an_exporter_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    told = fail_to_serve(tmp_path, "--port", "0", "--store", "memory:")
    assert "OTEL_TRACES_EXPORTER names 'pigeon', and no such exporter is installed." in told
