"""Consumers that leave while the store is at work for them: what it leases then is given back."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.sending import Outgoing
from penstock.engine.messages import Messages
from penstock.engine.queues import Queues
from tests.support.queues import queue_name

ORDERS = queue_name("orders")


@pytest.mark.parametrize("place", ["lease.begun", "lease.committed"])
@pytest.mark.parametrize("wait_ms", [0, 20_000])
async def test_a_receive_that_is_cancelled_during_its_lease_gives_its_messages_back(
    messages: Messages, queues: Queues, failpoints: Failpoints, place: str, wait_ms: int
) -> None:
    await queues.create(ORDERS)
    sent = await messages.send(ORDERS, Outgoing(body="for somebody who is there"))
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        reached.set()
        await go_on.wait()

    failpoints.arm(place, pause)
    leaving = asyncio.create_task(messages.receive(ORDERS, lease_ms=43_200_000, wait_ms=wait_ms))
    await reached.wait()
    leaving.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    # The store may still be at it; giving back wakes whoever waits, and the clock stands still.
    [delivery] = await messages.receive(ORDERS, wait_ms=20_000)
    assert (delivery.message.message_id, delivery.message.receive_count) == (sent.message_id, 1)
