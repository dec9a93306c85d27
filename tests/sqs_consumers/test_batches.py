"""Batch handlers: the good messages of a batch are deleted, the bad ones kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Message
from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.handlers import batch_failures
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import SqsService, until

REPORTS: dict[str, Callable[[Message], Any]] = {
    "messages": lambda bad: [bad],
    "ids": lambda bad: [bad.id],
    "errors": lambda bad: {bad: ValueError("no")},
    "lambda": lambda bad: {"batchItemFailures": [{"itemIdentifier": bad.id}]},
}


@pytest.mark.parametrize("report", list(REPORTS))
async def test_only_what_did_not_fail_is_deleted(sqs: SqsService, report: str) -> None:
    url = sqs.create("orders")
    sqs.send(url, *"abcd")
    sizes: list[int] = []

    async def handle(messages: list[Message]) -> object:
        sizes.append(len(messages))
        bad = [message for message in messages if message.body == "c"]
        return REPORTS[report](bad[0]) if bad else None

    async with consuming(sqs, url, handle, batch=True, backoff=60) as running:
        await until(lambda: running.consumer.counters.deleted == 3)
        await until(lambda: running.consumer.counters.failed == 1)
    assert max(sizes) > 1
    assert sqs.counts(url) == (0, 1)
    assert [event.message.body for event in running.of("failed")] == ["c"]


async def test_a_batch_handler_that_raises_keeps_them_all(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *"ab")

    def handle(messages: list[Message]) -> None:
        raise ValueError("no")

    async with consuming(sqs, url, handle, batch=True, backoff=60) as running:
        await until(lambda: running.consumer.counters.failed == 2)
    assert sqs.counts(url) == (0, 2)


async def test_a_report_that_makes_no_sense_keeps_them_all(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *"ab")
    async with consuming(sqs, url, lambda messages: ["another id"], batch=True, backoff=60) as running:
        await until(lambda: running.consumer.counters.failed == 2)
    assert {type(event.error) for event in running.of("failed")} == {ConsumerInvalid}
    assert sqs.counts(url) == (0, 2)


async def test_no_more_batches_run_at_once_than_asked_for(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, *map(str, range(10)))
    held = most = 0

    async def handle(messages: list[Message]) -> None:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await until(lambda: held == 2 or running.consumer.counters.deleted >= 4)
        held -= 1

    async with consuming(ours, url, handle, batch=True, batch_size=2, concurrency=2) as running:
        await until(lambda: running.consumer.counters.deleted == 10)
    assert most == 2


async def test_what_follows_a_failure_in_a_group_of_a_batch_is_kept_in_order(ours: SqsService) -> None:
    url = ours.create("orders.fifo")
    ours.send(url, "a1", "a2", "a3", group="a")
    ours.send(url, "b1", "b2", group="b")
    given: list[list[str]] = []

    def handle(messages: list[Message]) -> list[Message]:
        given.append([message.body for message in messages])
        return [message for message in messages if message.body == "a2" and message.receive_count == 1]

    async with consuming(ours, url, handle, batch=True, backoff=1) as running:
        await until(lambda: running.consumer.counters.released)
        ours.advance(2)
        await until(lambda: running.consumer.counters.deleted == 5)
    assert given == [["a1", "a2", "a3", "b1", "b2"], ["a2", "a3"]]
    assert running.kinds("released") == [("released", "a3")]


@pytest.mark.parametrize("returned", ["text", 7, True, [None], ["unknown"], [{}]])
def test_other_reports_are_refused(returned: object) -> None:
    messages = [Message(id="1", body="", receipt="r", queue_url="q")]
    with pytest.raises((ConsumerInvalid, TypeError)):
        batch_failures(messages, returned)
