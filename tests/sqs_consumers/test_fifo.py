"""On FIFO queues a group runs in order, one message at a time, and stops at the first that is not done."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from penstock import Message, SqsConsumer
from tests.sqs_consumers.consuming import Consuming, consuming
from tests.support.campaigns import campaign, trials
from tests.support.sqs_services import Refusing, SqsService, quick_clock, until


async def test_a_group_runs_in_order_and_groups_run_at_once(sqs: SqsService) -> None:
    url = sqs.create("orders.fifo")
    sqs.send(url, "a1", "a2", "a3", group="a")
    sqs.send(url, "b1", group="b")
    started: list[str] = []
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        started.append(message.body)
        if message.body == "a1":
            await go.wait()

    async with consuming(sqs, url, handle) as running:
        await until(lambda: "b1" in started)
        assert started in (["a1", "b1"], ["b1", "a1"])
        go.set()
        await until(lambda: running.consumer.counters.deleted == 4)
    assert [body for body in started if body[0] == "a"] == ["a1", "a2", "a3"]
    assert sqs.counts(url) == (0, 0)


async def test_a_failure_stops_its_group_and_all_come_back_in_order(ours: SqsService) -> None:
    url = ours.create("orders.fifo")
    ours.send(url, "1", "2", "3")
    started: list[str] = []

    async def handle(message: Message) -> None:
        started.append(message.body)
        if started == ["1"]:
            raise ValueError("no")

    client = ours.new_client()
    changes = Refusing(client, "ChangeMessageVisibilityBatch", times=0)
    async with consuming(ours, url, handle, client=client, backoff=10) as running:
        await until(lambda: running.consumer.counters.released == 2)
        # Released at once, and yet not received: the failed one still hides, and they stay behind it.
        polls = running.consumer.counters.polls
        await until(lambda: running.consumer.counters.polls > polls + 1)
        assert started == ["1"]
        ours.advance(10)
        await until(lambda: running.consumer.counters.deleted == 3)
    assert started == ["1", "1", "2", "3"]
    client.close()
    receipts = {event.message.receipt: event.message.body for event in running.of("received")[:3]}
    [failed, released] = [[receipts[entry["ReceiptHandle"]] for entry in call["Entries"]] for call in changes.calls]
    assert (failed, released) == (["1"], ["3", "2"])


async def test_the_next_of_a_group_waits_until_the_delete_is_confirmed(ours: SqsService) -> None:
    """If the delete failed the first comes again, and must not find the second done."""
    url = ours.create("orders.fifo")
    ours.send(url, "1", "2")
    client = ours.new_client()
    refusing = Refusing(client, "DeleteMessageBatch", times=5)
    started: list[str] = []

    async def handle(message: Message) -> None:
        started.append(message.body)

    async with consuming(ours, url, handle, client=client, visibility=30) as running:
        await until(lambda: running.consumer.counters.undeleted)
        assert refusing.left == 0
        await until(lambda: running.consumer.counters.released)
        assert started == ["1"]
        ours.advance(31)
        await until(lambda: running.consumer.counters.deleted == 2)
    client.close()
    assert started == ["1", "1", "2"]


async def test_what_has_not_begun_is_released_in_order_on_stop(ours: SqsService) -> None:
    url = ours.create("orders.fifo")
    ours.send(url, "1", "2", "3")
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()

    async with consuming(ours, url, handle) as running:
        await until(lambda: running.of("started"))
        running.stop.set()
        await until(lambda: running.consumer.counters.released == 2)
        assert ours.bodies(url) == [], "the first still runs"
        go.set()
    assert running.consumer.counters.deleted == 1
    assert ours.bodies(url) == ["2", "3"]


class Ledger:
    """Notes what was done, and whether two of a group ever ran at once. One in four fails."""

    def __init__(self, chance: random.Random) -> None:
        self.done: dict[str, list[str]] = defaultdict(list)
        self.at_once: list[str] = []
        self._chance = chance
        self._running: set[str] = set()

    async def handle(self, message: Message) -> None:
        group = message.body[0]
        if group in self._running:
            self.at_once.append(message.body)
        self._running.add(group)
        try:
            await asyncio.sleep(self._chance.random() / 200)
            if self._chance.random() < 0.25:
                raise ValueError("no")
            self.done[group].append(message.body)
        finally:
            self._running.discard(group)


async def end(consuming: Consuming, *, cancel: bool) -> None:
    if cancel:
        consuming.running.cancel()
        await asyncio.wait([consuming.running])
    else:
        await consuming.end()


@campaign
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(trials(20, share=10)))
async def test_order_holds_with_failures_stops_and_several_consumers(ours: SqsService, seed: int) -> None:
    chance = random.Random(seed)
    url = ours.create("orders.fifo")
    groups = "abc"
    for number in range(6):
        for group in groups:
            ours.send(url, f"{group}{number}", group=group)
    ledger = Ledger(chance)

    def start() -> Consuming:
        events: list[object] = []
        consumer = SqsConsumer(
            ours.client,
            url,
            ledger.handle,
            concurrency=chance.choice([2, 5, 10]),
            wait=0,
            visibility=3_600,  # The clocks here do not go alike, so heartbeats are not to be needed.
            clock=quick_clock(),
            on_event=events.append,
        )
        return Consuming(consumer, events)  # type: ignore[arg-type]

    consumers = [start(), start()]
    async with asyncio.timeout(50):
        while sum(ours.counts(url)):
            await asyncio.sleep(0.02)
            ours.advance(chance.choice([1, 5, 20]))
            if chance.random() < 0.2:
                await end(consumers.pop(0), cancel=chance.random() < 0.5)
                consumers.append(start())
    for one in consumers:
        await one.end()
    assert ledger.at_once == []
    for group in groups:
        # Done twice is possible where a consumer was cancelled in between; out of order is not.
        assert list(dict.fromkeys(ledger.done[group])) == [f"{group}{number}" for number in range(6)]
        assert ledger.done[group] == sorted(ledger.done[group])
