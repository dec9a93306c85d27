"""Sends, deletes and visibility changes through the engine: validation, batches and retries."""

from __future__ import annotations

import pytest

from penstock.domain.errors import (
    BatchTooLong,
    InvalidMessageContents,
    InvalidParameter,
    MessageTooLong,
    QueueDoesNotExist,
    ReceiptHandleInvalid,
    StoreUnavailable,
)
from penstock.domain.failpoints import Failpoints
from penstock.domain.message import Refused, Sent
from penstock.domain.sending import Outgoing
from penstock.engine.messages import Messages
from penstock.engine.queues import Queues
from penstock.testing import ManualClock
from tests.support.queues import attempt_key, kinds, queue_name

ORDERS = queue_name("orders")
OTHERS = queue_name("others")
KEY = attempt_key("one request")


@pytest.fixture(autouse=True)
async def orders(queues: Queues) -> None:
    await queues.create(ORDERS)


def unavailable() -> None:
    raise StoreUnavailable("the answer was lost")


async def test_one_that_is_refused_raises_and_is_not_stored(messages: Messages, queues: Queues) -> None:
    with pytest.raises(InvalidMessageContents):
        await messages.send(ORDERS, Outgoing(body="\x00"))
    assert (await queues.count(ORDERS)).visible == 0


async def test_a_batch_is_judged_entry_by_entry(messages: Messages) -> None:
    results = await messages.send_batch(
        ORDERS, [Outgoing(body="good"), Outgoing(body="\x00"), Outgoing(body="late", delay_s=901), Outgoing(body="too")]
    )
    assert [type(result) for result in results] == [Sent, Refused, Refused, Sent]
    assert isinstance(results[1], Refused)
    assert results[1].error == "InvalidMessageContents"
    received = await messages.receive(ORDERS, count=10)
    assert sorted(delivery.message.body for delivery in received) == ["good", "too"]


async def test_a_batch_is_limited_as_a_whole(messages: Messages, queues: Queues) -> None:
    half = Outgoing(body="x" * 600_000)
    await messages.send_batch(ORDERS, [half])
    with pytest.raises(BatchTooLong):
        await messages.send_batch(ORDERS, [half, half])
    assert (await queues.count(ORDERS)).visible == 1


async def test_a_send_to_no_queue_is_refused(messages: Messages) -> None:
    with pytest.raises(QueueDoesNotExist):
        await messages.send(OTHERS, Outgoing(body="x"))


async def test_a_retry_gets_the_first_answer_though_its_queue_is_gone(
    messages: Messages, queues: Queues, failpoints: Failpoints
) -> None:
    failpoints.arm("append.committed", unavailable)
    # The engine looks for the outcome itself when the store fails it, and so gets the answer at once.
    first = await messages.send(ORDERS, Outgoing(body="x"), attempt=KEY)
    await queues.delete(ORDERS)
    assert await messages.send(ORDERS, Outgoing(body="x"), attempt=KEY) == first


async def test_a_retry_gets_the_first_answer_though_the_queue_takes_less_now(
    messages: Messages, queues: Queues
) -> None:
    long = Outgoing(body="x" * 2_000)
    first = await messages.send(ORDERS, long, attempt=KEY)
    await queues.set_attributes(ORDERS, {"MaximumMessageSize": "1024"})
    assert await messages.send(ORDERS, long, attempt=KEY) == first
    assert (await queues.count(ORDERS)).visible == 1
    with pytest.raises(MessageTooLong):
        await messages.send(ORDERS, long, attempt=attempt_key("another request"))


async def test_without_a_key_a_lost_answer_is_the_callers_to_resolve(
    messages: Messages, failpoints: Failpoints
) -> None:
    failpoints.arm("append.committed", unavailable)
    with pytest.raises(StoreUnavailable):
        await messages.send(ORDERS, Outgoing(body="x"))


async def test_a_retried_receive_gets_its_messages_again(messages: Messages) -> None:
    await messages.send(ORDERS, Outgoing(body="x"))
    first = await messages.receive(ORDERS, attempt=KEY)
    assert await messages.receive(ORDERS, attempt=KEY) == first
    assert await messages.receive(ORDERS) == []
    assert await messages.delete(ORDERS, [first[0].handle]) == [None]


async def test_handles_are_judged_one_by_one(messages: Messages, queues: Queues) -> None:
    await queues.create(OTHERS)
    await messages.send(ORDERS, Outgoing(body="mine"))
    await messages.send(OTHERS, Outgoing(body="theirs"))
    [mine] = await messages.receive(ORDERS)
    [theirs] = await messages.receive(OTHERS)
    deleted = await messages.delete(ORDERS, ["nonsense", mine.handle, theirs.handle])
    assert kinds(deleted) == [ReceiptHandleInvalid, None, ReceiptHandleInvalid]
    assert (await queues.count(ORDERS)).in_flight == 0
    assert (await queues.count(OTHERS)).in_flight == 1
    changed = await messages.change_visibility(
        OTHERS, [(theirs.handle, 43_201_000), ("nonsense", 0), (theirs.handle, 0), (theirs.handle, 5_000)]
    )
    assert kinds(changed) == [InvalidParameter, ReceiptHandleInvalid, None, None]


async def test_a_handle_of_a_queue_made_anew_is_refused(messages: Messages, queues: Queues, clock: ManualClock) -> None:
    await messages.send(ORDERS, Outgoing(body="x"))
    [delivery] = await messages.receive(ORDERS)
    await queues.delete(ORDERS)
    await clock.advance(seconds=60)
    await queues.create(ORDERS)
    assert kinds(await messages.delete(ORDERS, [delivery.handle])) == [ReceiptHandleInvalid]


async def test_released_messages_come_back_uncounted(messages: Messages, queues: Queues) -> None:
    await messages.send_batch(ORDERS, [Outgoing(body="a"), Outgoing(body="b")])
    await messages.release(ORDERS, await messages.receive(ORDERS, count=2))
    again = await messages.receive(ORDERS, count=2)
    assert [delivery.message.receive_count for delivery in again] == [1, 1]
    await queues.delete(ORDERS)
    await messages.release(ORDERS, again)
