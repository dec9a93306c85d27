"""What fails is kept and comes back by backoff; poison goes the same way and is told."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from penstock import Discard, Message, RetryAfter, Snooze
from penstock.client.errors import BodyInvalid
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import Refusing, SqsService, until


async def test_a_failed_message_comes_back_by_backoff_long_before_its_visibility_ends(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    seen: list[int] = []

    async def handle(message: Message) -> None:
        seen.append(message.receive_count)
        if message.receive_count < 4:
            raise OSError("upstream is away")

    async with consuming(ours, url, handle, visibility=900, backoff=4, max_backoff=10) as running:
        for failures in (1, 2, 3):
            await until(lambda: len(running.of("failed")) == failures)  # noqa: B023 - awaited at once
            ours.advance(running.of("failed")[-1].delay_s or 0)
        await until(lambda: running.consumer.counters.deleted)
    assert seen == [1, 2, 3, 4]
    delays = [event.delay_s for event in running.of("failed")]
    for delay_s, ceiling_s in zip(delays, (4, 8, 10), strict=True):
        assert delay_s is not None
        assert ceiling_s / 2 <= delay_s <= ceiling_s


async def test_what_fails_too_often_reaches_the_dead_letter_queue(sqs: SqsService) -> None:
    url, dead = sqs.create_with_dlq("orders", 2)
    sqs.send(url, "bad")

    def handle(message: Message) -> None:
        raise ValueError("no")

    async with consuming(sqs, url, handle, backoff=0, max_backoff=0) as running:
        await until(lambda: sqs.counts(dead) == (1, 0))
    assert running.consumer.counters.failed == 2
    assert sqs.bodies(dead) == ["bad"]


async def test_a_body_that_cannot_be_decoded_fails_like_a_handler_and_is_told(sqs: SqsService) -> None:
    url, dead = sqs.create_with_dlq("orders", 2)
    sqs.send(url, "{not json", '{"fine": true}')
    told: list[tuple[str, int, Exception]] = []

    async def poison(message: Message, error: Exception) -> None:
        told.append((message.body, message.receive_count, error))

    async def handle(message: Message) -> None:
        message.json()

    async with consuming(sqs, url, handle, backoff=0, max_backoff=0, on_poison=poison) as running:
        await until(lambda: sqs.counts(dead) == (1, 0))
    assert [(body, count) for body, count, _ in told] == [("{not json", 1), ("{not json", 2)]
    assert all(isinstance(error, BodyInvalid) for *_, error in told)
    assert running.consumer.counters.poison == 2
    assert running.consumer.counters.deleted == 1


@pytest.mark.parametrize("dealt_with", [True, False])
async def test_on_poison_decides_what_becomes_of_a_message_that_failed_too_often(
    ours: SqsService, dealt_with: bool
) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    told: list[int] = []

    def poison(message: Message, error: Exception) -> bool:
        told.append(message.receive_count)
        return dealt_with

    def handle(message: Message) -> None:
        raise ValueError("no")

    async with consuming(ours, url, handle, backoff=0, max_backoff=0, poison_after=3, on_poison=poison) as running:
        await until(lambda: running.consumer.counters.poison)
        if dealt_with:
            await until(lambda: running.consumer.counters.deleted)
    assert told[0] == 3
    assert (ours.counts(url) == (0, 0)) is dealt_with


async def test_an_on_poison_that_fails_keeps_the_message(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "{")

    def poison(message: Message, error: Exception) -> bool:
        raise RuntimeError

    async with consuming(ours, url, Message.json, on_poison=poison) as running:
        await until(lambda: running.consumer.counters.failed)
    assert sum(ours.counts(url)) == 1


@pytest.mark.parametrize(
    ("raised", "kind", "delay_s"), [(RetryAfter(40), "failed", 40), (Snooze("2m"), "snoozed", 120)]
)
async def test_a_handler_decides_when_its_message_comes_back(
    ours: SqsService, raised: Exception, kind: str, delay_s: int
) -> None:
    url = ours.create("orders")
    ours.send(url, "a")

    async def handle(message: Message) -> None:
        if message.receive_count == 1:
            raise raised

    async with consuming(ours, url, handle) as running:
        await until(lambda: running.of(kind))
        assert running.of(kind)[0].delay_s == delay_s
        ours.advance(delay_s - 1)
        assert ours.counts(url) == (0, 1)
        ours.advance(1)
        await until(lambda: running.consumer.counters.deleted)
    assert running.consumer.counters.failed == (kind == "failed")


async def test_discarded_messages_are_deleted_and_not_done(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")

    async def handle(message: Message) -> None:
        raise Discard("gone")

    async with consuming(ours, url, handle) as running:
        await until(lambda: running.consumer.counters.deleted)
    counters = running.consumer.counters
    assert (counters.discarded, counters.done, counters.failed) == (1, 0, 0)
    assert ours.counts(url) == (0, 0)


async def test_a_delete_that_sqs_never_takes_is_told_apart_from_a_failure(
    ours: SqsService, caplog: pytest.LogCaptureFixture
) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    client = ours.new_client()
    Refusing(client, "DeleteMessageBatch", times=1_000)
    async with consuming(ours, url, lambda message: None, client=client) as running:
        await until(lambda: running.consumer.counters.undeleted)
    client.close()
    counters = running.consumer.counters
    assert (counters.done, counters.failed, counters.deleted) == (1, 0, 0)
    assert [record.levelname for record in caplog.records if "undeleted" in record.message] == ["ERROR"]


async def test_a_stale_receipt_handle_is_a_warning(ours: SqsService, caplog: pytest.LogCaptureFixture) -> None:
    url = ours.create("orders.fifo")
    ours.send(url, "a")

    def handle(message: Message) -> None:
        if message.receive_count == 1:
            ours.advance(31)
            raise ValueError("too late")

    async with consuming(ours, url, handle, concurrency=1, visibility=30) as running:
        await until(lambda: running.consumer.counters.failed)
        assert running.of("failed")[0].delay_s is None
    [record] = [record for record in caplog.records if "visibility not changed" in record.message]
    assert record.levelno == logging.WARNING
    assert "expired" in record.message


async def test_receives_that_fail_later_are_tried_again(ours: SqsService, caplog: pytest.LogCaptureFixture) -> None:
    url = ours.create("orders")
    client = ours.new_client()
    done: list[str] = []

    def handle(message: Message) -> None:
        done.append(message.body)

    async with consuming(ours, url, handle, client=client) as running:
        await until(lambda: running.consumer.counters.polls)
        refusing: Any = Refusing(client, "ReceiveMessage", times=3, code="ServiceUnavailable", status=503)
        await until(lambda: refusing.left == 0)
        ours.send(url, "a")
        await until(lambda: done)
    client.close()
    assert [record.penstock_failures for record in caplog.records if "receive failed" in record.message] == [1, 2, 3]  # type: ignore[attr-defined]


async def test_a_handler_that_awaits_what_was_cancelled_has_failed(sqlite_sqs: SqsService) -> None:
    """Nobody cancelled the handler itself, so its message must not stay in hand for ever."""
    url = sqlite_sqs.create("orders.fifo")
    sqlite_sqs.send(url, "1", "2")

    async def handle(message: Message) -> None:
        if message.receive_count == 1:
            waiting = asyncio.create_task(asyncio.sleep(60))
            waiting.cancel()
            await waiting

    async with consuming(sqlite_sqs, url, handle, visibility=900, backoff=0) as running:
        await until(lambda: running.consumer.counters.failed)
        await until(lambda: running.consumer.counters.deleted == 2)
    assert isinstance(running.of("failed")[0].error, RuntimeError)
    assert running.consumer.counters.in_flight == 0


async def test_a_batch_handler_that_awaits_what_was_cancelled_has_failed(sqlite_sqs: SqsService) -> None:
    url = sqlite_sqs.create("orders")
    sqlite_sqs.send(url, "1", "2")

    async def handle(messages: list[Message]) -> None:
        if messages[0].receive_count == 1:
            waiting = asyncio.create_task(asyncio.sleep(60))
            waiting.cancel()
            await waiting

    async with consuming(sqlite_sqs, url, handle, batch=True, visibility=900, backoff=0) as running:
        await until(lambda: running.consumer.counters.failed == 2)
        await until(lambda: running.consumer.counters.deleted == 2)
