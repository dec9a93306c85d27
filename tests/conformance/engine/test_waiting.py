"""Long polls: what ends them, and in which order they are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.domain.errors import InvalidParameter, OverLimit, QueueDoesNotExist
from penstock.domain.failpoints import Failpoints
from penstock.domain.queue import Queue, QueueName
from penstock.domain.sending import Outgoing
from penstock.engine.engine import Engine
from penstock.engine.messages import Delivery, Messages
from penstock.engine.queues import Queues
from penstock.store.port import FULL_AGAIN_MS, Leased, Store
from penstock.testing import ManualClock
from tests.support.queues import queue_name, with_limits

ORDERS = queue_name("orders")
FIFO = queue_name("orders.fifo")
Poll = asyncio.Task[list[Delivery]]


class Looks:
    """Counts how often the store was asked for messages, by standing in front of it and passing every call on."""

    def __init__(self, store: Store) -> None:
        self._lease = store.lease
        self._idle = asyncio.Event()
        self._idle.set()
        self._under_way = 0
        self.begun = asyncio.Event()
        self.count = 0
        store.lease = self.lease  # type: ignore[method-assign] # To count, and for nothing else.

    async def lease(self, queue: Queue, **arguments: Any) -> Leased:
        self.count += 1
        self._under_way += 1
        self.begun.set()
        self._idle.clear()
        try:
            return await self._lease(queue, **arguments)
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self._idle.set()

    async def settle(self) -> None:
        """Let what was woken run, until no look at the store is under way."""
        for _ in range(3):
            await self._idle.wait()
            for _ in range(10):
                await asyncio.sleep(0)


@pytest.fixture
def looks(store: Store) -> Looks:
    return Looks(store)


@pytest.fixture
async def orders(queues: Queues) -> None:
    await queues.create(ORDERS)


@pytest.fixture
async def polls(looks: Looks) -> AsyncIterator[list[Poll]]:
    """The polls of a test, cancelled in the end."""
    started: list[Poll] = []
    yield started
    for poll in started:
        poll.cancel()
    await asyncio.gather(*started, return_exceptions=True)


async def start_poll(
    polls: list[Poll],
    messages: Messages,
    looks: Looks,
    name: QueueName = ORDERS,
    *,
    count: int = 1,
    lease_ms: int = 30_000,
) -> Poll:
    poll = asyncio.create_task(messages.receive(name, count=count, lease_ms=lease_ms, wait_ms=20_000))
    polls.append(poll)
    await looks.settle()
    return poll


def body(deliveries: list[Delivery]) -> list[str]:
    return [delivery.message.body for delivery in deliveries]


@pytest.mark.usefixtures("orders")
async def test_long_poll_ends_empty_at_its_deadline(
    messages: Messages, clock: ManualClock, looks: Looks, polls: list[Poll]
) -> None:
    poll = await start_poll(polls, messages, looks)
    await clock.advance(seconds=19.999)
    await looks.settle()
    assert not poll.done()
    await clock.advance(seconds=0.001)
    assert await poll == []


@pytest.mark.usefixtures("orders")
async def test_a_send_wakes_the_poll_that_waits(messages: Messages, looks: Looks, polls: list[Poll]) -> None:
    poll = await start_poll(polls, messages, looks)
    await messages.send(ORDERS, Outgoing(body="here"))
    assert body(await poll) == ["here"]


@pytest.mark.usefixtures("orders")
async def test_a_lease_that_runs_out_wakes_the_poll_that_waits(
    messages: Messages, clock: ManualClock, looks: Looks, polls: list[Poll]
) -> None:
    await messages.send(ORDERS, Outgoing(body="again"))
    assert body(await messages.receive(ORDERS, lease_ms=5_000)) == ["again"]
    poll = await start_poll(polls, messages, looks)
    await clock.advance(seconds=4.999)
    await looks.settle()
    assert not poll.done()
    await clock.advance(ms=1)
    assert body(await poll) == ["again"]


@pytest.mark.usefixtures("orders")
async def test_a_lease_taken_while_others_wait_wakes_them_when_it_runs_out(
    messages: Messages, clock: ManualClock, looks: Looks, polls: list[Poll]
) -> None:
    first = await start_poll(polls, messages, looks, lease_ms=1_000, count=10)
    second = await start_poll(polls, messages, looks, lease_ms=1_000)
    await messages.send(ORDERS, Outgoing(body="one"))
    assert body(await first) == ["one"]
    await clock.advance(seconds=1)
    assert body(await second) == ["one"]


@pytest.mark.usefixtures("orders")
async def test_a_delayed_message_wakes_the_poll_when_it_comes_due(
    messages: Messages, clock: ManualClock, looks: Looks, polls: list[Poll]
) -> None:
    poll = await start_poll(polls, messages, looks)
    await messages.send(ORDERS, Outgoing(body="later", delay_s=7))
    await looks.settle()
    await clock.advance(seconds=6.999)
    await looks.settle()
    assert not poll.done()
    await clock.advance(ms=1)
    assert body(await poll) == ["later"]


@pytest.mark.usefixtures("orders")
async def test_a_delayed_message_wakes_the_poll_though_an_earlier_poll_took_what_came_with_it(
    clock: ManualClock, messages: Messages, looks: Looks, polls: list[Poll]
) -> None:
    first = await start_poll(polls, messages, looks, count=2)
    second = await start_poll(polls, messages, looks)
    await messages.send_batch(ORDERS, [Outgoing(body="now"), Outgoing(body="later", delay_s=2)])
    assert body(await first) == ["now"]
    await looks.settle()
    await clock.advance(seconds=2)
    assert body(await second) == ["later"]


@pytest.mark.usefixtures("orders")
async def test_a_look_during_which_time_passes_makes_no_poll_late(
    clock: ManualClock, failpoints: Failpoints, messages: Messages, looks: Looks, polls: list[Poll]
) -> None:
    poll = await start_poll(polls, messages, looks)
    failpoints.arm("lease.committed", lambda: clock.advance(seconds=1))
    await messages.send(ORDERS, Outgoing(body="later", delay_s=2))
    await looks.settle()
    assert not failpoints
    await clock.advance(seconds=1)
    assert body(await poll) == ["later"]


@pytest.mark.usefixtures("orders")
async def test_a_message_given_back_early_wakes_the_poll(messages: Messages, looks: Looks, polls: list[Poll]) -> None:
    await messages.send(ORDERS, Outgoing(body="back"))
    [delivery] = await messages.receive(ORDERS, lease_ms=30_000)
    poll = await start_poll(polls, messages, looks)
    assert await messages.change_visibility(ORDERS, [(delivery.handle, 0)]) == [None]
    assert body(await poll) == ["back"]


@pytest.mark.usefixtures("orders")
async def test_a_lease_that_is_shortened_wakes_the_poll_in_time(
    messages: Messages, clock: ManualClock, looks: Looks, polls: list[Poll]
) -> None:
    await messages.send(ORDERS, Outgoing(body="sooner"))
    [delivery] = await messages.receive(ORDERS, lease_ms=30_000)
    poll = await start_poll(polls, messages, looks)
    await messages.change_visibility(ORDERS, [(delivery.handle, 2_000)])
    await looks.settle()
    await clock.advance(seconds=2)
    assert body(await poll) == ["sooner"]


@pytest.mark.usefixtures("orders")
async def test_polls_are_served_in_the_order_of_their_arrival(
    messages: Messages, looks: Looks, polls: list[Poll]
) -> None:
    waiting = [await start_poll(polls, messages, looks) for _ in range(5)]
    for number, poll in enumerate(waiting):
        await messages.send(ORDERS, Outgoing(body=str(number)))
        assert body(await poll) == [str(number)]


@pytest.mark.usefixtures("orders")
async def test_a_batch_wakes_as_many_polls_as_it_has_messages(
    messages: Messages, looks: Looks, polls: list[Poll]
) -> None:
    waiting = [await start_poll(polls, messages, looks) for _ in range(5)]
    await messages.send_batch(ORDERS, [Outgoing(body=str(number)) for number in range(3)])
    served = await asyncio.gather(*waiting[:3])
    await looks.settle()
    assert sorted(text for deliveries in served for text in body(deliveries)) == ["0", "1", "2"]
    assert not any(poll.done() for poll in waiting[3:])


@pytest.mark.usefixtures("orders")
async def test_a_send_costs_one_look_however_many_wait(messages: Messages, looks: Looks, polls: list[Poll]) -> None:
    waiting = [await start_poll(polls, messages, looks, count=10) for _ in range(20)]
    before = looks.count
    await messages.send(ORDERS, Outgoing(body="one"))
    assert body(await waiting[0]) == ["one"]
    await looks.settle()
    assert looks.count - before == 1


@pytest.mark.usefixtures("orders")
async def test_waiting_looks_at_nothing_while_nothing_happens(
    messages: Messages, clock: ManualClock, looks: Looks, polls: list[Poll]
) -> None:
    for _ in range(10):
        await start_poll(polls, messages, looks)
    before = looks.count
    await clock.advance(seconds=0.9)
    await looks.settle()
    assert looks.count == before


@pytest.mark.usefixtures("orders")
async def test_a_poll_that_is_cancelled_passes_its_wake_up_on(
    messages: Messages, looks: Looks, polls: list[Poll]
) -> None:
    first = await start_poll(polls, messages, looks)
    second = await start_poll(polls, messages, looks)
    sent = asyncio.create_task(messages.send(ORDERS, Outgoing(body="for whoever is left")))
    first.cancel()
    await sent
    with pytest.raises(asyncio.CancelledError):
        await first
    assert body(await second) == ["for whoever is left"]


@pytest.mark.usefixtures("orders")
async def test_a_poll_that_is_cancelled_while_it_leases_gives_the_message_back(
    store: Store, messages: Messages, looks: Looks, polls: list[Poll]
) -> None:
    await messages.send(ORDERS, Outgoing(body="not lost"))
    poll = asyncio.create_task(messages.receive(ORDERS, wait_ms=20_000))
    await looks.begun.wait()
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    later = await start_poll(polls, messages, looks)
    [delivery] = await later
    assert (delivery.message.body, delivery.message.receive_count) == ("not lost", 1)


async def test_a_fifo_poll_is_woken_when_its_group_is_unblocked(
    messages: Messages, queues: Queues, looks: Looks, polls: list[Poll]
) -> None:
    await queues.create(FIFO, {"FifoQueue": "true"})
    for number in ("1", "2"):
        await messages.send(FIFO, Outgoing(body=number, group="g", deduplication_id=number))
    [delivery] = await messages.receive(FIFO)
    poll = await start_poll(polls, messages, looks, FIFO)
    assert not poll.done()
    await messages.delete(FIFO, [delivery.handle])
    assert body(await poll) == ["2"]


async def test_a_dead_letter_wakes_the_poll_on_its_queue(
    messages: Messages, queues: Queues, clock: ManualClock, looks: Looks, polls: list[Poll]
) -> None:
    await queues.create(ORDERS)
    source = queue_name("source")
    await queues.create(source, {"RedrivePolicy": f'{{"deadLetterTargetArn":"{ORDERS.arn}","maxReceiveCount":1}}'})
    await messages.send(source, Outgoing(body="poison"))
    await messages.receive(source, lease_ms=1_000)
    poll = await start_poll(polls, messages, looks)
    await clock.advance(seconds=1)
    assert await messages.receive(source) == []
    assert body(await poll) == ["poison"]


@pytest.mark.usefixtures("orders")
async def test_a_poll_learns_that_its_queue_is_gone(
    messages: Messages, queues: Queues, looks: Looks, polls: list[Poll]
) -> None:
    poll = await start_poll(polls, messages, looks)
    await queues.delete(ORDERS)
    with pytest.raises(QueueDoesNotExist):
        await poll


@pytest.mark.usefixtures("orders")
async def test_polls_end_at_once_when_the_service_stops(
    engine: Engine, messages: Messages, looks: Looks, polls: list[Poll]
) -> None:
    waiting = [await start_poll(polls, messages, looks) for _ in range(3)]
    engine.end_waits()
    assert await asyncio.gather(*waiting) == [[], [], []]
    assert await messages.receive(ORDERS, wait_ms=20_000) == []


@with_limits(waiters_per_queue_max=2)
@pytest.mark.usefixtures("orders")
async def test_only_so_many_may_wait(messages: Messages, looks: Looks, polls: list[Poll]) -> None:
    for _ in range(2):
        await start_poll(polls, messages, looks)
    with pytest.raises(OverLimit):
        await messages.receive(ORDERS, wait_ms=1_000)


@pytest.mark.parametrize("name", [ORDERS, FIFO], ids=["standard", "fifo"])
@with_limits(in_flight_standard_max=1, in_flight_fifo_max=1)
async def test_at_the_in_flight_limit_a_long_poll_waits(
    messages: Messages, queues: Queues, clock: ManualClock, looks: Looks, polls: list[Poll], name: QueueName
) -> None:
    """Only a short poll of a standard queue is refused."""
    await queues.create(name, {"FifoQueue": "true"} if name.fifo else {})
    for text in "ab":
        await messages.send(name, Outgoing(body=text, group=text, deduplication_id=text if name.fifo else None))
    [held] = await messages.receive(name, lease_ms=60_000)
    if name.fifo:
        assert await messages.receive(name) == []
    else:
        with pytest.raises(OverLimit):
            await messages.receive(name)
    empty = await start_poll(polls, messages, looks, name)
    await clock.advance(seconds=20)
    assert await empty == []
    served = await start_poll(polls, messages, looks, name)
    await messages.delete(name, [held.handle])
    await clock.advance(ms=FULL_AGAIN_MS)
    assert body(await served) == ["b"]


async def test_the_queues_own_settings_stand_in(
    messages: Messages, queues: Queues, clock: ManualClock, looks: Looks, polls: list[Poll]
) -> None:
    await queues.create(ORDERS, {"ReceiveMessageWaitTimeSeconds": "3", "VisibilityTimeout": "4"})
    poll = asyncio.create_task(messages.receive(ORDERS))
    polls.append(poll)
    await looks.settle()
    await clock.advance(seconds=2.999)
    await messages.send(ORDERS, Outgoing(body="x"))
    assert body(await poll) == ["x"]
    await clock.advance(seconds=3.999)
    assert await messages.receive(ORDERS, wait_ms=0) == []
    await clock.advance(ms=1)
    assert body(await messages.receive(ORDERS, wait_ms=0)) == ["x"]


@pytest.mark.parametrize(
    ("count", "lease_ms", "wait_ms"),
    [(0, 0, 0), (11, 0, 0), (1, -1, 0), (1, 43_201_000, 0), (1, 0, -1), (1, 0, 21_000)],
)
@pytest.mark.usefixtures("orders")
async def test_a_receive_out_of_its_ranges_is_refused(
    messages: Messages, count: int, lease_ms: int, wait_ms: int
) -> None:
    with pytest.raises(InvalidParameter):
        await messages.receive(ORDERS, count=count, lease_ms=lease_ms, wait_ms=wait_ms)
