"""Web pages in a real browser: they can neither change nor read anything, unless their origin is allowed."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, Route

from tests.end_to_end.browsing import browsing, find_chromium, page_server
from tests.end_to_end.running import REGION, RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(360)]

SECRET = "a secret that no page may read"
SCRIPT = (Path(__file__).parent / "browser" / "attacks.js").read_text()
HTML = f'<!doctype html><meta name="referrer" content="%s"><body><script>{SCRIPT}</script>'
REBOUND = "rebound.example"
FOREIGN = "evil.example"
ALLOWED = "app.example"
DOTLESS = "penstock"
"""A name that passes as a host, and is no secure context to a browser, which then says less about itself."""


@pytest.fixture(scope="session")
def chromium() -> str:
    return find_chromium()


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with browsing(chromium, REBOUND, FOREIGN, ALLOWED, DOTLESS) as made:
        yield made


class Stocked:
    """A server without keys that has a message and a job, and whose clock stands still."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.port = urlsplit(server.url).port
        sqs = server.sqs()
        sqs.send_message(QueueUrl=sqs.create_queue(QueueName="orders")["QueueUrl"], MessageBody=SECRET)
        self.job: str = server.post("/v1/jobs", {"queue": "mail", "task": "send", "payload": SECRET})["id"]

    def target(self, base: str) -> dict[str, str]:
        """Return what the script of attacks is told."""
        return {"base": base, "queue": f"{base}/queue/{REGION}/000000000000/orders", "job": self.job}

    def refused(self) -> int:
        """Return how many requests were refused."""
        with urllib.request.urlopen(f"{self.server.url}/metrics") as page:
            counts = re.findall(rb'_requests_total{.*status="403"} (\d+)', page.read())
        return sum(int(count) for count in counts)

    def state(self) -> dict[str, Any]:
        """Return all that a page could have changed."""
        return {
            "stats": self.server.get(f"/stats?region={REGION}"),
            "messages": self.server.get(f"/v1/queues/orders/messages?region={REGION}"),
            "job": self.server.get(f"/v1/jobs/{self.job}"),
            "clock": self.server.post("/_penstock/clock/advance", {"seconds": 0}),
        }


@pytest.fixture
def stocked(tmp_path: Path) -> Iterator[Stocked]:
    with RunningServer(tmp_path, "--port", "0", "--store", "memory:", "--clock", "manual") as server:
        yield Stocked(server)


async def navigate(page: Page, url: str) -> None:
    """Let a page leave for another address, as a link or a script does."""
    async with page.expect_navigation(wait_until="commit"):
        await page.evaluate("url => { location.href = url }", url)


async def check_attacks(page: Page, stocked: Stocked, base: str) -> None:
    before = stocked.state()
    target = stocked.target(base)
    seen: list[str] = await page.evaluate("attack", target)
    assert not [one for one in seen if SECRET in one or stocked.job in one]
    # It was the server that refused them, not the browser.
    assert stocked.refused() > 10
    for action in ("DeleteQueue", "SendMessage&MessageBody=forged", "ReceiveMessage"):
        page_url = page.url
        await navigate(page, f"{target['queue']}?Action={action}")
        await page.goto(page_url)
    assert stocked.state() == before


@pytest.mark.parametrize(
    ("host", "reached_by", "referrer"),
    [
        (FOREIGN, "127.0.0.1", "unsafe-url"),
        ("127.0.0.1", "127.0.0.1", "unsafe-url"),
        ("localhost", "127.0.0.1", "no-referrer"),
        (FOREIGN, DOTLESS, "unsafe-url"),
        (FOREIGN, DOTLESS, "no-referrer"),
    ],
)
async def test_a_page_of_another_origin_changes_and_reads_nothing(
    browser: Browser, stocked: Stocked, host: str, reached_by: str, referrer: str
) -> None:
    page = await browser.new_page()
    with page_server(HTML % referrer) as port:
        await page.goto(f"http://{host}:{port}/")
        await check_attacks(page, stocked, f"http://{reached_by}:{stocked.port}")


async def test_a_page_under_a_rebound_name_changes_and_reads_nothing(browser: Browser, stocked: Stocked) -> None:
    page = await browser.new_page()
    base = f"http://{REBOUND}:{stocked.port}"

    async def own_page(route: Route) -> None:
        await route.fulfill(content_type="text/html", body=HTML % "unsafe-url")

    # The name led to the attacker's own server first, and now leads to ours.
    await page.route(f"{base}/attack", own_page)
    await page.goto(f"{base}/attack")
    before = stocked.state()
    seen = await page.evaluate("attack", stocked.target(base))
    assert stocked.state() == before
    assert not [one for one in seen if SECRET in one or stocked.job in one]
    # To the browser it is the same origin, so the page reads the refusals.
    assert any(f"--allowed-host {REBOUND}" in one for one in seen)


SDK = """
async ({ base, queue }) => {
  const call = async (name, shape) => {
    const headers = {
      "authorization": "AWS4-HMAC-SHA256 Credential=any/20260101/%s/sqs/aws4_request, SignedHeaders=host, Signature=0",
      "amz-sdk-invocation-id": crypto.randomUUID(),
      "amz-sdk-request": "attempt=1; max=3",
      "content-type": "application/x-amz-json-1.0",
      "x-amz-date": "20260101T000000Z",
      "x-amz-target": `AmazonSQS.${name}`,
      "x-amz-user-agent": "aws-sdk-js/3.1164.0 ua/2.1 os/other lang/js md/browser#Chromium",
    };
    const answer = await fetch(`${base}/`, { method: "POST", mode: "cors", headers, body: JSON.stringify(shape) });
    return [answer.status, answer.headers.get("x-amzn-requestid"), await answer.json()];
  };
  const sent = await call("SendMessage", { QueueUrl: queue, MessageBody: "from a page" });
  const refused = await call("SendMessage", { QueueUrl: queue + "-missing", MessageBody: "from a page" });
  const body = JSON.stringify({ queue: "mail", task: "from a page" });
  const headers = { "content-type": "application/json", "idempotency-key": "1" };
  const enqueued = await fetch(`${base}/v1/jobs`, { method: "POST", headers, body });
  const stats = await fetch(`${base}/stats?region=%s`);
  return { sent, refused, location: enqueued.headers.get("location"), stats: await stats.json() };
}
""" % (REGION, REGION)  # noqa: UP031 - braces are JavaScript's here


async def test_an_sdk_works_in_a_page_of_an_allowed_origin_and_in_no_other(browser: Browser, tmp_path: Path) -> None:
    with page_server(HTML % "unsafe-url") as port:
        arguments = ("--port", "0", "--store", "memory:", "--clock", "manual")
        allowed = f"http://localhost:{port}"
        with RunningServer(tmp_path, *arguments, "--allowed-origin", allowed) as server:
            stocked = Stocked(server)
            page = await browser.new_page()
            await page.goto(f"{allowed}/")
            seen = await page.evaluate(SDK, stocked.target(server.url))
            status, request_id, sent = seen["sent"]
            assert (status, len(request_id)) == (200, 36)
            assert sent["MessageId"]
            status, request_id, refused = seen["refused"]
            assert (status, refused["__type"]) == (400, "com.amazonaws.sqs#QueueDoesNotExist")
            assert seen["location"].startswith("/v1/jobs/")
            [orders] = seen["stats"]["queues"]
            assert orders["visible"] == 2
            other = await browser.new_page()
            await other.goto(f"http://{FOREIGN}:{port}/")
            await check_attacks(other, stocked, server.url)


async def test_a_person_can_look_at_the_server_in_a_browser(browser: Browser, stocked: Stocked) -> None:
    page = await browser.new_page()
    for path in ("/docs", "/openapi.json", "/stats", "/?Action=ListQueues"):
        answer = await page.goto(stocked.server.url + path)
        assert answer is not None
        assert answer.status == 200
    answer = await page.goto(f"{stocked.server.url}/?Action=CreateQueue&QueueName=typed")
    assert answer is not None
    assert answer.status == 403
    assert [queue["name"] for queue in stocked.state()["stats"]["queues"]] == ["orders"]
