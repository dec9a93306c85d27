"""Heartbeats hold what outlasts its visibility, from the receipt on, also while the event loop is blocked."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from penstock import Message
from penstock.testing import ManualClock
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import PATIENCE_S, Refusing, SqsService, until


async def test_work_that_outlasts_its_visibility_is_held(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()

    clock = ManualClock()
    async with consuming(ours, url, handle, visibility=30, clock=clock) as running:
        await until(lambda: running.of("started"))
        for beats in range(1, 7):
            ours.advance(20)
            await clock.advance(seconds=20)
            await until(lambda: running.consumer.counters.extended == beats)  # noqa: B023 - awaited at once
        assert ours.counts(url) == (0, 1), "two minutes later it is still hidden"
        go.set()
        await until(lambda: running.consumer.counters.deleted)
        running.stop.set()
    assert running.consumer.counters.received == 1
    assert ours.counts(url) == (0, 0)


async def test_messages_that_wait_for_their_group_are_held_too(ours: SqsService) -> None:
    url = ours.create("orders.fifo")
    ours.send(url, "1", "2")
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()

    clock = ManualClock()
    async with consuming(ours, url, handle, visibility=30, clock=clock) as running:
        await until(lambda: running.of("started"))
        for beats in (2, 4):
            ours.advance(20)
            await clock.advance(seconds=20)
            await until(lambda: running.consumer.counters.extended == beats)  # noqa: B023 - awaited at once
        go.set()
        await until(lambda: running.consumer.counters.deleted == 2)
        running.stop.set()
    assert {event.message.body for event in running.of("extended")} == {"1", "2"}


async def test_a_blocked_event_loop_loses_no_message(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    client = ours.new_client()
    beaten = threading.Event()
    client.meta.events.register("after-call.sqs.ChangeMessageVisibilityBatch", lambda **_: beaten.set())
    clock = ManualClock()
    held: list[bool] = []

    async def handle(message: Message) -> None:
        ours.advance(20)
        await clock.advance(seconds=20)
        # From here to the end of the wait, the loop can do nothing.
        held.append(beaten.wait(PATIENCE_S))

    async with consuming(ours, url, handle, client=client, visibility=30, clock=clock) as running:
        await until(lambda: running.consumer.counters.deleted)
        running.stop.set()
    client.close()
    assert held == [True]


async def test_a_heartbeat_never_overwrites_a_backoff(ours: SqsService) -> None:
    """A heartbeat is on its way when the handler fails: the backoff waits for it."""
    url = ours.create("orders")
    ours.send(url, "a")
    client = ours.new_client()
    on_its_way, go = threading.Event(), threading.Event()

    def hold_first(params: dict[str, Any], **_: Any) -> None:
        if params["Entries"][0]["VisibilityTimeout"] == 30 and not on_its_way.is_set():
            on_its_way.set()
            go.wait(PATIENCE_S)

    answered: list[int] = []
    client.meta.events.register("provide-client-params.sqs.ChangeMessageVisibilityBatch", hold_first)
    client.meta.events.register("after-call.sqs.ChangeMessageVisibilityBatch", lambda **_: answered.append(1))
    clock = ManualClock()

    async def handle(message: Message) -> None:
        await clock.advance(seconds=11)
        await until(on_its_way.is_set)
        asyncio.get_running_loop().call_later(0.05, go.set)
        raise ValueError("no")

    async with consuming(ours, url, handle, client=client, visibility=30, backoff=2, clock=clock) as running:
        await until(lambda: running.consumer.counters.failed)
        await until(lambda: len(answered) == 2)
        running.stop.set()
    client.close()
    assert running.of("failed")[0].delay_s is not None
    ours.advance(2)
    assert ours.bodies(url) == ["a"]


async def test_a_heartbeat_that_crosses_the_delete_is_no_loss(sqlite_sqs: SqsService) -> None:
    """SQS has deleted the message and its answer is on its way when a heartbeat is due."""
    url = sqlite_sqs.create("orders.fifo")
    sqlite_sqs.send(url, "a")
    client = sqlite_sqs.new_client()
    clock = ManualClock()
    deleted, beaten = threading.Event(), threading.Event()

    def answered(**_: Any) -> None:
        deleted.set()
        beaten.wait(PATIENCE_S)

    client.meta.events.register("after-call.sqs.DeleteMessageBatch", answered)
    client.meta.events.register("after-call.sqs.ChangeMessageVisibilityBatch", lambda **_: beaten.set())
    async with consuming(
        sqlite_sqs, url, lambda message: None, client=client, concurrency=1, visibility=30, clock=clock
    ) as running:
        await until(deleted.is_set)
        await clock.advance(seconds=11)
        await until(lambda: running.consumer.counters.deleted)
        running.stop.set()
    client.close()
    assert beaten.is_set()
    assert running.of("lost") == []


class WatchedClock(ManualClock):
    """Counts how often heartbeats look at it, so that a test can wait until they are done with an answer."""

    looks = 0

    def now_ms(self) -> int:
        if threading.current_thread().name == "penstock-sqs-heartbeats":
            self.looks += 1
        return super().now_ms()

    async def settled(self) -> None:
        # One look may be under way, one is of the answer, and one asks what is due next.
        enough = self.looks + 3
        await until(lambda: self.looks >= enough)


async def test_a_heartbeat_that_fails_is_tried_again(ours: SqsService, caplog: pytest.LogCaptureFixture) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    client = ours.new_client()
    refusing = Refusing(client, "ChangeMessageVisibilityBatch", times=2, code="ServiceUnavailable", status=503)
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()

    clock = WatchedClock()
    async with consuming(ours, url, handle, client=client, visibility=30, clock=clock) as running:
        await until(lambda: running.of("started"))
        await clock.advance(seconds=10)
        await until(lambda: refusing.left == 1)
        await clock.settled()
        await clock.advance(seconds=1)
        await until(lambda: refusing.left == 0)
        await clock.settled()
        await clock.advance(seconds=1)
        await until(lambda: running.consumer.counters.extended)
        go.set()
        await until(lambda: running.consumer.counters.deleted)
        running.stop.set()
    client.close()
    assert len([record for record in caplog.records if "heartbeat failed" in record.message]) == 1
    assert running.consumer.counters.lost == 0


async def test_a_message_that_was_lost_is_told(ours: SqsService) -> None:
    url = ours.create("orders.fifo")
    ours.send(url, "a")
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()

    clock = ManualClock()
    async with consuming(ours, url, handle, concurrency=1, visibility=30, clock=clock) as running:
        await until(lambda: running.of("started"))
        ours.advance(31)
        assert ours.bodies(url) == ["a"], "somebody else has it"
        await clock.advance(seconds=10)
        await until(lambda: running.consumer.counters.lost)
        go.set()
        await until(lambda: running.consumer.counters.undeleted)
        running.stop.set()
    assert [event.reason for event in running.of("lost")] == ["the receipt handle is stale"]


async def test_nobody_holds_a_message_for_longer_than_sqs_allows(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    client = ours.new_client()
    asked: list[int] = []
    client.meta.events.register(
        "provide-client-params.sqs.ChangeMessageVisibilityBatch",
        lambda params, **_: asked.extend(entry["VisibilityTimeout"] for entry in params["Entries"]),
    )
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()

    clock = ManualClock()
    async with consuming(ours, url, handle, client=client, visibility=40_000, heartbeat=20_000, clock=clock) as running:
        await until(lambda: running.of("started"))
        for _ in range(2):
            ours.advance(20_000)
            await clock.advance(seconds=20_000)
            await until(lambda: len(asked) == running.consumer.counters.extended > 0)
        await until(lambda: len(asked) == 2)
        await clock.advance(seconds=20_000)
        await until(lambda: running.consumer.counters.lost)
        go.set()
        await until(lambda: running.consumer.counters.deleted)
        running.stop.set()
    client.close()
    assert asked == [43_200 - 5 - 20_000, 43_200 - 5 - 40_000]
    assert running.of("lost")[0].reason == "held for 12 hours, which is the longest"


async def test_heartbeats_end_with_the_consumer(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    async with consuming(ours, url, lambda message: None) as running:
        await until(lambda: running.consumer.counters.deleted)
    deadline = time.monotonic() + PATIENCE_S
    while any(thread.name == "penstock-sqs-heartbeats" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
