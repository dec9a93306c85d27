"""Listening: whoever waits for messages is told when there may be some, after the commit."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    GROUP,
    dead_letters_to,
    delete,
    hide,
    lease,
    lease_bodies,
    make_queue,
    on_both_kinds,
    release,
    send,
)

HEARD_WITHIN_S = 30.0


class Listener:
    """Hears what a store reports, and lets a test wait for it."""

    def __init__(self, store: Store) -> None:
        self._heard: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        store.listen(self._ready)

    def _ready(self, queue_id: int, count: int) -> None:
        assert asyncio.get_running_loop() is self._loop
        self._heard[queue_id] = self._heard.get(queue_id, 0) + count
        self._changed.set()

    def forget(self) -> None:
        self._heard.clear()

    async def hears(self, queue: Queue) -> int:
        """Wait until the queue is reported, and return how many messages that was said of."""
        async with asyncio.timeout(HEARD_WITHIN_S):
            while queue.id not in self._heard:
                self._changed.clear()
                await self._changed.wait()
        return self._heard[queue.id]


@pytest.fixture
async def listener(store: Store) -> Listener:
    return Listener(store)


@on_both_kinds
async def test_an_append_is_heard(store: Store, listener: Listener, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    assert await listener.hears(queue) >= 1


async def test_what_is_heard_is_committed(store: Store) -> None:
    found: list[asyncio.Task[list[str]]] = []
    queue = await make_queue(store)
    heard = asyncio.Event()

    def look(queue_id: int, count: int) -> None:
        found.append(asyncio.create_task(lease_bodies(store, queue, lease_ms=0)))
        heard.set()

    store.listen(look)
    await send(store, queue, "a")
    async with asyncio.timeout(HEARD_WITHIN_S):
        await heard.wait()
        assert await found[0] == ["a"]


async def test_the_queue_that_is_heard_is_the_one_that_was_sent_to(store: Store, listener: Listener) -> None:
    orders, invoices = await make_queue(store, "orders"), await make_queue(store, "invoices")
    await send(store, invoices, "a")
    await listener.hears(invoices)
    listener.forget()
    await send(store, orders, "a")
    assert await listener.hears(orders) >= 1


@on_both_kinds
async def test_a_release_is_heard(store: Store, listener: Listener, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    leased = await lease(store, queue)
    await listener.hears(queue)
    listener.forget()
    await release(store, queue, *leased)
    assert await listener.hears(queue) >= 1


@on_both_kinds
@pytest.mark.parametrize("lease_ms", [0, 1_000])
async def test_a_change_to_an_earlier_instant_is_heard(
    store: Store, listener: Listener, name: str, lease_ms: int
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    leased = await lease(store, queue, lease_ms=30_000)
    await listener.hears(queue)
    listener.forget()
    await hide(store, queue, *leased, lease_ms=lease_ms)
    assert await listener.hears(queue) >= 1


@on_both_kinds
async def test_a_dead_letter_is_heard_where_it_arrives(
    store: Store, listener: Listener, clock: ManualClock, name: str
) -> None:
    dead = await make_queue(store, name.replace("orders", "dead"))
    queue = await make_queue(store, name, redrive=dead_letters_to(dead.name.name, after=1))
    await send(store, queue, "a")
    await lease(store, queue)
    await clock.advance(seconds=30)
    await lease(store, queue)
    assert await listener.hears(dead) >= 1


@on_both_kinds
async def test_a_task_move_is_heard_where_it_arrives(store: Store, listener: Listener, name: str) -> None:
    dead, queue = await make_queue(store, name.replace("orders", "dead")), await make_queue(store, name)
    await send(store, dead, "a")
    await store.start_move("task", dead, queue, None)
    await store.advance_moves()
    assert await listener.hears(queue) >= 1


async def test_a_delete_that_unblocks_a_group_is_heard(store: Store, listener: Listener) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", "b", group=GROUP)
    leased = await lease(store, queue, 1)
    await listener.hears(queue)
    listener.forget()
    await delete(store, queue, *leased)
    assert await listener.hears(queue) >= 1


async def test_a_purge_of_a_blocked_group_and_a_send_are_heard(store: Store, listener: Listener) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", group=GROUP)
    await lease(store, queue)
    await store.purge_queue(queue)
    await listener.hears(queue)
    listener.forget()
    await send(store, queue, "b", group=GROUP)
    assert await listener.hears(queue) >= 1
