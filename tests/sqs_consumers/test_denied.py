"""Where ChangeMessageVisibility is denied, work goes on without it, and one warning says so."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

from penstock import Message, SqsConsumer
from penstock.client.errors import QueueUnusable
from penstock.testing import ManualClock
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import PATIENCE_S, Refusing, SqsService, until


@pytest.fixture
def denied(ours: SqsService) -> Any:
    client = ours.new_client()
    Refusing(client, "ChangeMessageVisibilityBatch", times=1_000, code="AccessDenied", status=403)
    yield client
    client.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "not allowed to change visibility" in record.message]


async def test_a_consumer_that_may_not_delete_ends(ours: SqsService) -> None:
    """It would do all work over and over."""
    url, client = ours.create("orders"), ours.new_client()
    ours.send(url, "a")
    Refusing(client, "DeleteMessageBatch", times=1_000, code="AccessDenied", status=403)
    with pytest.raises(QueueUnusable, match="do not allow"):
        await SqsConsumer(client, url, lambda message: None, wait=0).run()
    client.close()


async def test_a_consumer_that_may_not_delete_begins_nothing_more(sqlite_sqs: SqsService) -> None:
    """A poll is on its way when the first delete is denied: what it brings is released."""
    url, client = sqlite_sqs.create("orders"), sqlite_sqs.new_client()
    sqlite_sqs.send(url, "a")
    Refusing(client, "DeleteMessageBatch", times=1_000, code="AccessDenied", status=403)
    go, polls = threading.Event(), itertools.count(1)

    def hold_second(**_: Any) -> None:
        if next(polls) == 2:
            go.wait(PATIENCE_S)

    client.meta.events.register("provide-client-params.sqs.ReceiveMessage", hold_second)
    async with consuming(sqlite_sqs, url, lambda message: None, client=client, visibility=900) as running:
        await until(lambda: running.consumer.counters.undeleted)
        sqlite_sqs.send(url, "b")
        go.set()
        with pytest.raises(QueueUnusable, match="do not allow"):
            await running.running
        running.running = asyncio.create_task(asyncio.sleep(0))
    client.close()
    assert running.kinds("started", "released") == [("started", "a"), ("released", "b")]
    assert sqlite_sqs.counts(url) == (1, 1)


async def test_failures_come_back_when_their_visibility_ends(
    ours: SqsService, denied: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = ours.create("orders")
    ours.send(url, *"abc")

    def handle(message: Message) -> None:
        if message.receive_count == 1:
            raise ValueError("no")

    async with consuming(ours, url, handle, client=denied, visibility=30) as running:
        await until(lambda: running.consumer.counters.failed == 3)
        assert ours.counts(url) == (0, 3)
        ours.advance(31)
        await until(lambda: running.consumer.counters.deleted == 3)
    assert {event.delay_s for event in running.of("failed")} == {None}
    assert len(warnings(caplog)) == 1
    assert "allow sqs:ChangeMessageVisibility" in warnings(caplog)[0]


async def test_heartbeats_end_and_the_work_does_not(
    ours: SqsService, denied: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = ours.create("orders")
    ours.send(url, *"ab")
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()
        if message.body == "a":
            raise ValueError("no")

    clock = ManualClock()
    async with consuming(ours, url, handle, client=denied, concurrency=2, visibility=30, clock=clock) as running:
        await until(lambda: running.consumer.counters.started == 2)
        await clock.advance(seconds=10)
        await until(lambda: warnings(caplog))
        go.set()
        await until(lambda: running.consumer.counters.deleted == 1)
        await until(lambda: running.consumer.counters.failed == 1)
        running.stop.set()
    assert len(warnings(caplog)) == 1
