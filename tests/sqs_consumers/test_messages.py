"""Handlers run on messages, and what they are done with is deleted."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime

from penstock import Message
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import Refusing, SqsService, until


async def test_an_async_handler_is_given_messages_and_they_are_deleted(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.client.send_message(
        QueueUrl=url,
        MessageBody='{"order": 17}',
        MessageAttributes={
            "kind": {"DataType": "String", "StringValue": "new"},
            "blob": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
        },
    )
    seen: list[Message] = []

    async def handle(message: Message) -> None:
        seen.append(message)

    async with consuming(sqs, url, handle) as running:
        await until(lambda: running.consumer.counters.deleted)
    [message] = seen
    assert message.json() == {"order": 17}
    assert message.attributes == {"kind": "new", "blob": b"\x00\x01"}
    assert (message.receive_count, message.group, message.sequence) == (1, None, None)
    assert message.queue_url == url
    assert message.sent_at is not None
    assert message.sent_at > datetime(2020, 1, 1, tzinfo=UTC)
    assert sqs.counts(url) == (0, 0)
    assert [event.kind for event in running.events] == ["received", "started", "done", "deleted"]
    assert message.body not in repr(message)
    assert message.receipt not in repr(message)


async def test_sync_handlers_run_in_threads_at_once(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *"abcd")
    together = threading.Barrier(4, timeout=20)
    on = set[str]()

    def handle(message: Message) -> None:
        together.wait()
        on.add(threading.current_thread().name)

    async with consuming(sqs, url, handle, concurrency=4) as running:
        await until(lambda: running.consumer.counters.deleted == 4)
    assert threading.main_thread().name not in on


async def test_no_more_is_received_than_can_run(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *map(str, range(9)))
    go, held, most = asyncio.Event(), 0, 0

    async def handle(message: Message) -> None:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await go.wait()
        held -= 1

    async with consuming(sqs, url, handle, concurrency=3) as running:
        await until(lambda: held == 3)
        assert running.consumer.counters.received == 3
        assert running.consumer.counters.in_flight == 3
        assert sqs.counts(url) == (6, 3)
        go.set()
        await until(lambda: running.consumer.counters.deleted == 9)
    assert most == 3
    assert running.consumer.counters.in_flight == 0


async def test_deletes_share_calls_and_what_failed_of_them_is_tried_again(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *map(str, range(10)))
    client = sqs.new_client()
    refusing = Refusing(client, "DeleteMessageBatch", times=2).entries(lambda entry: entry["Id"] in "02")
    together = asyncio.Event()
    begun = 0

    async def handle(message: Message) -> None:
        nonlocal begun
        begun += 1
        if begun == 10:
            together.set()
        await together.wait()

    async with consuming(sqs, url, handle, client=client) as running:
        await until(lambda: running.consumer.counters.deleted == 10)
    client.close()
    assert refusing.left == 0
    assert len(refusing.calls[0]["Entries"]) == 10
    assert len(refusing.calls) == 3
    assert sqs.counts(url) == (0, 0)
    assert running.consumer.counters.undeleted == 0


async def test_middleware_runs_around_the_handler_in_order(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, "a")
    told: list[str] = []

    async def outer(message: Message, call_next: object) -> object:
        told.append(f"outer {message.body}")
        result = await call_next()  # type: ignore[operator]
        told.append(f"outer got {result}")
        return result

    async def inner(message: Message, call_next: object) -> object:
        told.append("inner")
        return await call_next()  # type: ignore[operator]

    async with consuming(sqs, url, lambda message: f"did {message.body}", middleware=[outer, inner]) as running:
        await until(lambda: running.consumer.counters.deleted)
    assert told == ["outer a", "inner", "outer got did a"]
    assert running.of("done")[0].result == "did a"


async def test_a_message_that_comes_again_while_it_runs_is_not_run_twice_at_once(ours: SqsService) -> None:
    """Its visibility ended: the network was away, say. The newer receipt handle deletes it."""
    url = ours.create("orders.fifo")
    ours.send(url, "a")
    go = asyncio.Event()
    runs = 0

    async def handle(message: Message) -> None:
        nonlocal runs
        runs += 1
        await go.wait()

    async with consuming(ours, url, handle, visibility=30) as running:
        await until(lambda: runs)
        ours.advance(31)
        await until(lambda: running.consumer.counters.received == 2)
        go.set()
        await until(lambda: running.consumer.counters.deleted)
    assert runs == 1
    assert ours.counts(url) == (0, 0)
    assert [event.reason for event in running.of("lost")] == ["received again while it is in hand"]


async def test_an_event_callback_that_fails_costs_no_message(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, json.dumps({"id": 1}))

    def observe(_: object) -> None:
        raise RuntimeError

    async with consuming(ours, url, lambda message: None, on_event=observe) as running:
        await until(lambda: running.consumer.counters.deleted)
