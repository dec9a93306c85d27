"""What `/v1/queues/{name}/messages` answers."""

from __future__ import annotations

import pytest

from penstock.domain.message import Attribute
from penstock.domain.sending import Outgoing
from penstock.engine.engine import Engine
from penstock.server.app import App, Monitors
from penstock.server.counters import RequestCounters
from penstock.server.metrics import Metrics
from penstock.testing import ManualClock
from tests.support.queues import ACCOUNT, REGION, queue_name
from tests.unit.server.test_app import Page, engine, page, well

__all__ = ["engine", "page"]

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

ORDERS = queue_name("orders.fifo")
PATH = "/v1/queues/orders.fifo/messages"


@pytest.fixture
async def orders(engine: Engine) -> None:
    await engine.queues.create(ORDERS, {"FifoQueue": "true"})
    for number in range(3):
        outgoing = Outgoing(
            body=f"order {number}", group=f"table {number}".replace(" ", "-"), deduplication_id=f"{number}"
        )
        await engine.messages.send(ORDERS, outgoing, sender="AIDA")


async def test_a_message_is_told_whole(page: Page, engine: Engine, clock: ManualClock) -> None:
    await engine.queues.create(queue_name("orders"))
    attributes = {"colour": Attribute("String", "blau"), "picture": Attribute("Binary.png", b"\x00\xff")}
    outgoing = Outgoing(body="eins", attributes=attributes, trace_header="Root=1", group="table")
    sent = await engine.messages.send(queue_name("orders"), outgoing, sender="AIDA")
    sent_at_ms = clock.now_ms()
    await clock.advance(seconds=1)
    await engine.messages.receive(queue_name("orders"))
    assert await page.ask("GET", "/v1/queues/orders/messages") == (
        200,
        {
            "name": "orders",
            "arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders",
            "messages": [
                {
                    "message_id": sent.message_id,
                    "state": "leased",
                    "visible_at_ms": sent_at_ms + 31_000,
                    "sent_at_ms": sent_at_ms,
                    "first_received_at_ms": sent_at_ms + 1_000,
                    "receive_count": 1,
                    "sender": "AIDA",
                    "group": "table",
                    "deduplication_id": None,
                    "sequence_number": None,
                    "dead_letter_source": None,
                    "trace_header": "Root=1",
                    "attributes": {
                        "colour": {"data_type": "String", "string_value": "blau"},
                        "picture": {"data_type": "Binary.png", "binary_value": "AP8="},
                    },
                    "body": "eins",
                }
            ],
            "after": None,
        },
    )


@pytest.mark.usefixtures("orders")
async def test_a_message_that_nobody_received_has_no_first_receive(page: Page) -> None:
    _, answer = await page.ask("GET", f"{PATH}?limit=1")
    [message] = answer["messages"]
    assert (message["state"], message["first_received_at_ms"], message["receive_count"]) == ("visible", None, 0)
    assert (message["group"], message["deduplication_id"]) == ("table-0", "0")
    assert len(message["sequence_number"]) == 20


@pytest.mark.usefixtures("orders")
async def test_messages_come_in_pages_and_by_state(page: Page, engine: Engine) -> None:
    _, first = await page.ask("GET", f"{PATH}?limit=2")
    _, rest = await page.ask("GET", f"{PATH}?limit=2&after={first['after']}")
    assert [message["body"] for message in first["messages"] + rest["messages"]] == ["order 0", "order 1", "order 2"]
    assert rest["after"] is None
    await engine.messages.receive(ORDERS)
    for state, expected in [("visible", ["order 1", "order 2"]), ("leased", ["order 0"]), ("delayed", [])]:
        _, answer = await page.ask("GET", f"{PATH}?state={state}")
        assert [message["body"] for message in answer["messages"]] == expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("state=asleep", "Invalid request: state is none of visible, delayed, leased."),
        ("after=x", "Invalid request: after is not what an earlier answer said."),
        ("after=-1", "Invalid request: after is not what an earlier answer said."),
        ("after=²", "Invalid request: after is not what an earlier answer said."),
        ("after=9223372036854775808", "Value 9223372036854775808 for after is not between 0 and 9223372036854775807."),
        ("limit=0", "Value 0 for limit is not between 1 and 100."),
        ("limit=101", "Value 101 for limit is not between 1 and 100."),
        ("limit=ten", "Invalid request: limit is not a whole number."),
    ],
)
@pytest.mark.usefixtures("orders")
async def test_what_makes_no_sense_is_refused(page: Page, query: str, reason: str) -> None:
    assert await page.ask("GET", f"{PATH}?{query}") == (400, {"message": reason})


@pytest.mark.usefixtures("orders")
async def test_the_ends_of_the_ranges_are_taken(page: Page) -> None:
    status, answer = await page.ask("GET", f"{PATH}?limit=100&after=9223372036854775807")
    assert (status, answer["messages"], answer["after"]) == (200, [], None)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/queues/nowhere/messages",
        "/v1/queues/no such name/messages",
        f"{PATH}?region=nowhere",
        f"{PATH}?account=111122223333",
    ],
)
@pytest.mark.usefixtures("orders")
async def test_a_queue_that_does_not_exist_is_not_found(page: Page, target: str) -> None:
    status, answer = await page.ask("GET", target)
    assert status == 404
    assert "does not exist" in answer["message"]


@pytest.mark.parametrize(
    "path", ["/v1/queues//messages", "/v1/queues/orders.fifo/messages/", "/v1/queues/a/b/messages"]
)
async def test_there_is_nothing_beside_it(page: Page, path: str) -> None:
    assert await page.ask("GET", path) == (404, {"message": "There is nothing here."})


@pytest.mark.usefixtures("orders")
async def test_nobody_can_do_more_than_look(page: Page) -> None:
    for method in ("POST", "DELETE", "PUT"):
        assert await page.ask(method, PATH) == (405, {"message": "This takes GET only."})


@pytest.mark.usefixtures("orders")
async def test_only_monitors_may_look(engine: Engine) -> None:
    metrics = Metrics(engine, RequestCounters())
    app = App(engine, well, metrics, region=REGION, account=ACCOUNT, monitors=Monitors("a token for monitoring"))
    assert (await Page(app).ask("GET", PATH))[0] == 401
    assert (await Page(app, b"Bearer a token for monitoring").ask("GET", PATH))[0] == 200
    app = App(engine, well, metrics, region=REGION, account=ACCOUNT, monitors=Monitors(required=True))
    assert (await Page(app).ask("GET", PATH))[0] == 403
