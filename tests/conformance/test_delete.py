"""Deleting by receipt: what is deleted, and what each kind of old receipt is answered."""

from __future__ import annotations

from penstock.domain.errors import ReceiptHandleExpired
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    bodies,
    counts,
    delete,
    hide,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    release,
    send,
)
from tests.support.stores import Reopen


@on_both_kinds
async def test_a_leased_message_is_deleted_for_good(
    store: Store, clock: ManualClock, reopen: Reopen, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    a, _ = await lease(store, queue)
    assert await delete(store, queue, a) == [None]
    assert await counts(store, queue) == (0, 1, 0)
    store = await reopen()
    await clock.advance(seconds=30)
    assert await lease_bodies(store, queue) == ["b"]


@on_both_kinds
async def test_a_message_that_is_gone_is_deleted_again_with_success(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    assert await delete(store, queue, message, message) == [None, None]
    assert await delete(store, queue, message) == [None]
    assert await counts(store, queue) == (0, 0, 0)


async def test_a_stale_receipt_is_expired_on_a_fifo_queue(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    stale = await lease_one(store, queue)
    await clock.advance(seconds=30)
    current = await lease_one(store, queue)
    assert await delete(store, queue, stale) == [ReceiptHandleExpired]
    assert await delete(store, queue, current) == [None]
    assert await counts(store, queue) == (0, 0, 0)


async def test_a_current_receipt_deletes_after_its_lease_on_a_standard_queue(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    await clock.advance(seconds=30)
    assert await delete(store, queue, message) == [None]
    assert await counts(store, queue) == (0, 0, 0)


async def test_a_current_receipt_is_expired_after_its_lease_on_a_fifo_queue(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    await clock.advance(seconds=30)
    assert await delete(store, queue, message) == [ReceiptHandleExpired]
    assert await lease_bodies(store, queue) == ["a"]


async def test_a_lease_of_no_time_can_be_deleted_by_on_a_standard_queue_only(store: Store) -> None:
    standard, fifo = await make_queue(store, "orders"), await make_queue(store, "orders.fifo")
    for queue, answer in ((standard, None), (fifo, ReceiptHandleExpired)):
        await send(store, queue, "a")
        message = await lease_one(store, queue, lease_ms=0)
        assert await delete(store, queue, message) == [answer]


async def test_a_released_receipt_is_expired_on_a_fifo_queue(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    await release(store, queue, message)
    assert await delete(store, queue, message) == [ReceiptHandleExpired]
    assert await lease_bodies(store, queue) == ["a"]


async def test_a_delete_in_time_is_one_before_the_lease_is_over(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    message = await lease_one(store, queue, lease_ms=30_000)
    await clock.advance(ms=29_999)
    assert await delete(store, queue, message) == [None]


async def test_each_entry_is_judged_by_itself(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    for group in ("stale", "gone", "leased"):
        await send(store, queue, group, group=group)
    earlier = {message.body: message for message in await lease(store, queue)}
    await hide(store, queue, earlier["gone"], earlier["leased"], lease_ms=60_000)
    await delete(store, queue, earlier["gone"])
    await clock.advance(seconds=30)
    answers = await delete(store, queue, earlier["stale"], earlier["gone"], earlier["leased"])
    assert answers == [ReceiptHandleExpired, None, None]
    assert await lease_bodies(store, queue) == ["stale"]


async def test_many_messages_are_deleted_in_one_call(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, *(str(number) for number in range(30)))
    leased = await lease(store, queue, 20)
    assert await delete(store, queue, *leased) == [None] * 20
    remaining = await lease(store, queue, 20)
    assert bodies(remaining) == [str(number) for number in range(20, 30)]


async def test_a_receipt_does_not_act_on_a_queue_made_again_under_the_name(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "old")
    old = await lease_one(store, queue)
    await store.delete_queue(queue)
    await clock.advance(seconds=60)
    queue = await make_queue(store)
    await send(store, queue, "new")
    await lease_one(store, queue)
    assert await delete(store, queue, old) == [None]
    assert await counts(store, queue) == (0, 1, 0)
