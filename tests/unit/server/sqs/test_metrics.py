"""Metrics and logs of requests."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from penstock.domain.limits import Limits
from penstock.domain.queue import QueueName
from penstock.engine.engine import Engine
from penstock.server import metrics
from penstock.server.counters import RequestCounters
from penstock.server.metrics import Metrics
from penstock.server.sqs import SqsEndpoint
from penstock.testing import ManualClock
from penstock.wire.http import Request
from tests.support.board import Board
from tests.unit.server.sqs.conftest import Client, Refusal


@pytest.fixture
def counted() -> RequestCounters:
    return RequestCounters()


@pytest.fixture
def endpoint(engine: Engine, limits: Limits, counted: RequestCounters) -> SqsEndpoint:
    return SqsEndpoint(engine, counters=counted)


@pytest.fixture
def board(engine: Engine, counted: RequestCounters) -> Board:
    return Board(Metrics(engine, counted))


def in_queue(name: str, state: str) -> dict[str, str]:
    return {"region": "us-east-1", "account": "000000000000", "queue": name, "state": state}


async def test_requests_are_counted_by_operation_and_status_and_errors_by_code(client: Client, board: Board) -> None:
    url = await client.create("orders")
    for _ in range(3):
        await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    with pytest.raises(Refusal):
        await client.call("SendMessage", QueueUrl="absent", MessageBody="a")
    await board.look()
    assert board.value("penstock_requests_total", operation="SendMessage", status="200") == 3
    assert board.value("penstock_requests_total", operation="SendMessage", status="400") == 1
    assert board.value("penstock_requests_total", operation="CreateQueue", status="200") == 1
    assert board.value("penstock_errors_total", code="AWS.SimpleQueueService.NonExistentQueue") == 1
    assert board.value("penstock_request_duration_seconds_count", operation="SendMessage") == 4
    assert board.value("penstock_request_duration_seconds_bucket", operation="SendMessage", le="+Inf") == 4
    total_s = board.value("penstock_request_duration_seconds_sum", operation="SendMessage")
    assert total_s is not None
    assert 0 < total_s < 60


async def test_what_was_never_understood_is_counted_as_unknown(endpoint: SqsEndpoint, board: Board) -> None:
    for number in range(3):
        await endpoint.answer(Request("POST", "/", f"Action=Invented{number}", {}, b""))
    await board.look()
    assert board.labels("penstock_requests_total", "operation") == {"Unknown"}
    assert board.value("penstock_errors_total", code="InvalidAction") == 3


async def test_queues_are_told_by_what_they_hold(client: Client, board: Board) -> None:
    url = await client.create("orders")
    for delay in (0, 0, 0, 60):
        await client.call("SendMessage", QueueUrl=url, MessageBody="a", DelaySeconds=delay)
    await client.receive(url)
    await board.look()
    depths = {state: board.value("penstock_queue_messages", **in_queue("orders", state)) for state in STATES}
    assert depths == {"visible": 2, "in_flight": 1, "delayed": 1}
    assert board.value("penstock_queues_uncounted") == 0


async def test_the_age_of_the_oldest_message_is_told(client: Client, board: Board, clock: ManualClock) -> None:
    url = await client.create("orders")
    labels = {"region": "us-east-1", "account": "000000000000", "queue": "orders"}
    await board.look()
    assert board.value("penstock_queue_oldest_message_age_seconds", **labels) == 0
    await client.call("SendMessage", QueueUrl=url, MessageBody="old")
    await clock.advance(seconds=90)
    await client.call("SendMessage", QueueUrl=url, MessageBody="new")
    await client.receive(url)
    await board.look()
    assert board.value("penstock_queue_oldest_message_age_seconds", **labels) == 90


STATES = ("visible", "in_flight", "delayed")
PLACES = [("eu-west-1", "000000000000"), ("us-east-1", "111111111111"), ("us-east-1", "222222222222")]


async def test_queues_beyond_the_cap_are_told_together(
    client: Client, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "QUEUES_LABELLED_MAX", 2)
    monkeypatch.setattr(metrics, "QUEUES_COUNTED_MAX", 4)
    for number in range(4):
        url = await client.create(f"q{number}")
        await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    await board.look()
    assert board.labels("penstock_queue_messages", "queue") == {"q0", "q1", "(others)"}
    others = {"region": "", "account": "", "queue": "(others)", "state": "visible"}
    assert board.value("penstock_queue_messages", **others) == 2
    assert board.value("penstock_queues_uncounted") == 0
    await client.create("q4")
    await board.look()
    assert board.value("penstock_queue_messages", **others) == 2
    assert board.value("penstock_queues_uncounted") == 1


async def test_queues_are_found_in_every_region_and_account_also_where_no_request_was_made(
    board: Board, engine: Engine
) -> None:
    for region, account in PLACES:
        await engine.queues.create(QueueName(region, account, "orders"))
    await board.look()
    for region, account in PLACES:
        labels = {"region": region, "account": account, "queue": "orders", "state": "visible"}
        assert board.value("penstock_queue_messages", **labels) == 0


async def test_long_polls_are_counted_while_they_wait(client: Client, board: Board, clock: ManualClock) -> None:
    url = await client.create("orders")
    await board.look()
    assert board.value("penstock_long_polls_waiting") == 0
    polls = [asyncio.create_task(client.receive(url, WaitTimeSeconds=20)) for _ in range(3)]
    await clock.advance(seconds=1)
    await board.look()
    assert board.value("penstock_long_polls_waiting") == 3
    await clock.advance(seconds=20)
    assert await asyncio.gather(*polls) == [[], [], []]


async def test_the_process_is_told_of(board: Board) -> None:
    await board.look()
    assert board.value("process_resident_memory_bytes") is not None
    assert board.labels("penstock_build_info", "version")


# -- logs -----------------------------------------------------------------------------------------


def requests_in(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.message == "request"]


async def test_requests_are_logged_with_their_ids_for_those_who_want_all(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "penstock.server.sqs"):
        response = await client.respond("ListQueues")
    [line] = requests_in(caplog)
    assert line["request_id"] == dict(response.headers)["x-amzn-RequestId"]
    assert (line["operation"], line["status"], line["code"], line["levelname"]) == ("ListQueues", 200, "", "DEBUG")


async def test_other_requests_than_those_turned_away_are_not_worth_a_line(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "penstock.server.sqs"):
        url = await client.create("orders")
        await client.respond("SendMessage", QueueUrl="absent", MessageBody="a")
        await client.call("PurgeQueue", QueueUrl=url)
        await client.respond("PurgeQueue", QueueUrl=url)
    [line] = requests_in(caplog)
    assert (line["status"], line["code"]) == (403, "AWS.SimpleQueueService.PurgeQueueInProgress")
