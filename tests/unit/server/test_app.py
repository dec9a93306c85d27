"""What the application answers besides SQS."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import Limits
from penstock.domain.sending import Outgoing
from penstock.engine import Engine
from penstock.server.app import App, Monitors
from penstock.server.counters import RequestCounters
from penstock.server.metrics import Metrics
from penstock.testing import ManualClock
from tests.support.queues import ACCOUNT, REGION, queue_name

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])


class Page:
    """The application as a client sees it, without the network."""

    def __init__(self, app: App, authorization: bytes = b"") -> None:
        self.app = app
        self.authorization = authorization

    async def ask(self, method: str, target: str, *parts: bytes) -> tuple[int, Any]:
        path, _, query = target.partition("?")
        events = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        events.append({"type": "http.request", "body": b"", "more_body": False})
        sent: list[Any] = []

        async def receive() -> Any:
            return events.pop(0)

        async def send(event: Any) -> None:
            sent.append(event)

        headers = [(b"authorization", self.authorization)] if self.authorization else []
        scope: Any = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
        }
        await self.app(scope, receive, send)
        start, body = sent
        assert (b"content-length", str(len(body["body"])).encode()) in start["headers"]
        if (b"content-type", b"application/json") not in start["headers"]:
            return start["status"], body["body"].decode()
        return start["status"], json.loads(body["body"])


@pytest.fixture
async def engine(clock: ManualClock) -> AsyncIterator[Engine]:
    async with Engine.open("memory:", clock=clock, limits=Limits(list_page_max=3)) as engine:
        yield engine


async def well() -> None:
    pass


@pytest.fixture
def page(engine: Engine) -> Page:
    return Page(App(engine, well, Metrics(engine, RequestCounters()), region=REGION, account=ACCOUNT))


NOTHING: dict[str, object] = {
    "region": REGION,
    "account": ACCOUNT,
    "queues": [],
    "after": None,
    "job_queues": [],
    "jobs_after": None,
}


@pytest.mark.parametrize(
    ("method", "target", "status", "answer"),
    [
        ("GET", "/healthz", 200, {"status": "ok"}),
        ("GET", "/health", 200, {"status": "ok"}),
        ("POST", "/health", 405, {"message": "This takes GET only."}),
        ("GET", "/readyz", 200, {"status": "ready"}),
        ("GET", "/", 404, {"message": "There is nothing here."}),
        ("GET", "/healthz/", 404, {"message": "There is nothing here."}),
        ("POST", "/healthz", 405, {"message": "This takes GET only."}),
        ("HEAD", "/healthz", 200, {"status": "ok"}),
        ("POST", "/_penstock/clock/advance", 404, {"message": "There is nothing here."}),
        ("GET", "/stats?limit=x", 400, {"message": "Invalid request: limit is not a whole number."}),
        (
            "GET",
            "/stats?" + "a=1&" * 21,
            400,
            {"message": "Invalid request: Max number of fields exceeded."},
        ),
        ("GET", "/stats?limit=3", 200, NOTHING),
        (
            "GET",
            "/stats?limit=3&jobs_after=%00",
            400,
            {"message": "Invalid request: jobs_after is not what an earlier answer said."},
        ),
    ],
)
async def test_each_place_answers(page: Page, method: str, target: str, status: int, answer: object) -> None:
    assert await page.ask(method, target) == (status, answer)


async def test_a_body_has_its_limit(page: Page) -> None:
    status, _ = await page.ask("GET", "/healthz", *[b"x" * 1_000] * 5)
    assert status == 413


async def test_a_server_whose_store_is_away_is_not_ready(engine: Engine) -> None:
    async def away() -> None:
        raise StoreUnavailable("The database does not answer.")

    page = Page(App(engine, away, Metrics(engine, RequestCounters()), region=REGION, account=ACCOUNT))
    assert await page.ask("GET", "/readyz") == (503, {"message": "The database does not answer."})
    assert await page.ask("GET", "/healthz") == (200, {"status": "ok"})


async def test_stats_come_in_pages(page: Page, engine: Engine) -> None:
    for number in range(5):
        await engine.queues.create(queue_name(f"q{number}"))
    await engine.messages.send(queue_name("q1"), Outgoing(body="visible"))
    await engine.messages.send(queue_name("q1"), Outgoing(body="delayed", delay_s=5))
    await engine.messages.send(queue_name("q1"), Outgoing(body="visible too"))
    await engine.messages.receive(queue_name("q1"))
    _, first = await page.ask("GET", "/stats?limit=2")
    assert [queue["name"] for queue in first["queues"]] == ["q0", "q1"]
    assert first["queues"][1] == {
        "name": "q1",
        "arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:q1",
        "visible": 1,
        "in_flight": 1,
        "delayed": 1,
    }
    _, rest = await page.ask("GET", f"/stats?after={first['after']}&limit=3")
    assert ([queue["name"] for queue in rest["queues"]], rest["after"]) == (["q2", "q3", "q4"], None)
    status, _ = await page.ask("GET", "/stats?limit=4")
    assert status == 400
    _, elsewhere = await page.ask("GET", "/stats?region=nowhere&limit=1")
    assert elsewhere["queues"] == []


async def test_stats_tell_of_job_queues(page: Page, engine: Engine) -> None:
    for name in ("first", "second"):
        await engine.jobs.enqueueing.enqueue(name, JobRequest(task="greet"))
    await engine.jobs.enqueueing.enqueue("first", JobRequest(task="greet", delay_ms=5_000))
    _, first = await page.ask("GET", "/stats?limit=1")
    [queue] = first["job_queues"]
    assert (queue["name"], queue["paused"], queue["depth"]) == ("first", False, 2)
    assert {state: count for state, count in queue["jobs"].items() if count} == {"scheduled": 1, "queued": 1}
    _, rest = await page.ask("GET", f"/stats?limit=1&jobs_after={first['jobs_after']}")
    assert ([queue["name"] for queue in rest["job_queues"]], rest["jobs_after"]) == (["second"], None)


async def test_a_manual_clock_is_moved(engine: Engine, clock: ManualClock) -> None:
    page = Page(App(engine, well, Metrics(engine, RequestCounters()), region=REGION, account=ACCOUNT, clock=clock))
    start_ms = clock.now_ms()
    assert await page.ask("POST", "/_penstock/clock/advance", b'{"seconds"', b": 1.5}") == (
        200,
        {"now_ms": start_ms + 1_500},
    )
    assert await page.ask("POST", "/_penstock/clock/advance", b'{"ms": 500}') == (200, {"now_ms": start_ms + 2_000})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"seconds": -1}', b'{"seconds": 1e99}', b'{"hours": 1}', b"\xff"])
async def test_a_clock_is_moved_by_what_makes_sense_only(engine: Engine, clock: ManualClock, body: bytes) -> None:
    page = Page(App(engine, well, Metrics(engine, RequestCounters()), region=REGION, account=ACCOUNT, clock=clock))
    before_ms = clock.now_ms()
    status, answer = await page.ask("POST", "/_penstock/clock/advance", body)
    assert status == 400
    assert answer["message"].startswith("Invalid request: ")
    assert clock.now_ms() == before_ms


# -- who may look ---------------------------------------------------------------------------------

TOKEN = "a token for monitoring"
CLOSED = (403, {"message": "This is closed, because there are keys and no monitoring token is configured."})
ASKED = (401, {"message": "This takes the monitoring token."})


@pytest.mark.parametrize(
    ("monitors", "authorization", "refusal"),
    [
        (Monitors(), b"", None),
        (Monitors(required=True), b"", CLOSED),
        (Monitors(required=True), b"Bearer ", CLOSED),
        (Monitors(TOKEN), b"", ASKED),
        (Monitors(TOKEN), b"Bearer a token for", ASKED),
        (Monitors(TOKEN), b"Bearer " + TOKEN.encode(), None),
        (Monitors(TOKEN, required=True), b"Bearer " + TOKEN.encode(), None),
    ],
)
async def test_only_monitors_see_what_goes_on(
    engine: Engine, clock: ManualClock, monitors: Monitors, authorization: bytes, refusal: object
) -> None:
    metrics = Metrics(engine, RequestCounters())
    app = App(engine, well, metrics, region=REGION, account=ACCOUNT, clock=clock, monitors=monitors)
    page = Page(app, authorization)
    for method, target in [("GET", "/stats?limit=1"), ("GET", "/metrics"), ("POST", "/_penstock/clock/advance")]:
        answer = await page.ask(method, target, b"{}" if method == "POST" else b"")
        if refusal is None:
            assert answer[0] == 200
        else:
            assert answer == refusal
    assert (await page.ask("GET", "/healthz"))[0] == 200
    assert (await page.ask("GET", "/health"))[0] == 200
    assert (await page.ask("GET", "/readyz"))[0] == 200
