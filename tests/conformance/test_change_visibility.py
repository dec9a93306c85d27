"""Changing how long a leased message stays hidden."""

from __future__ import annotations

import pytest

from penstock.domain.errors import InvalidParameter, MessageDoesNotExist, ReceiptHandleExpired
from penstock.domain.limits import HOUR_MS, Limits
from penstock.domain.message import VisibilityChange
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    counts,
    delete,
    hide,
    kinds,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    receipt_of,
    release,
    send,
)
from tests.support.stores import Reopen


@on_both_kinds
@pytest.mark.parametrize("lease_ms", [60_000, 5_000], ids=["later", "earlier"])
async def test_a_message_is_hidden_for_another_time_from_now_on(
    store: Store, clock: ManualClock, name: str, lease_ms: int
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    message = await lease_one(store, queue, lease_ms=30_000)
    await clock.advance(seconds=10)
    assert await hide(store, queue, message, lease_ms=lease_ms) == [None]
    await clock.advance(ms=lease_ms - 1)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


@on_both_kinds
async def test_zero_makes_a_message_visible_at_once(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    assert await hide(store, queue, message, lease_ms=0) == [None]
    assert await counts(store, queue) == (1, 0, 0)
    again = await lease_one(store, queue)
    assert again.receive_count == 2
    assert again.receipt > message.receipt


@on_both_kinds
async def test_the_receipt_stays_good_after_a_change(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    assert await hide(store, queue, message, lease_ms=60_000) == [None]
    assert await hide(store, queue, message, lease_ms=10_000) == [None]
    assert await delete(store, queue, message) == [None]
    assert await counts(store, queue) == (0, 0, 0)


async def test_a_fifo_lease_that_is_over_cannot_be_extended(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    message = await lease_one(store, queue, lease_ms=30_000)
    await clock.advance(ms=30_000)
    assert await hide(store, queue, message, lease_ms=30_000) == [ReceiptHandleExpired]
    assert await lease_bodies(store, queue) == ["a"]


async def test_a_fifo_message_made_visible_cannot_be_hidden_again_by_the_same_receipt(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    await hide(store, queue, message, lease_ms=0)
    for lease_ms in (0, 30_000):
        assert await hide(store, queue, message, lease_ms=lease_ms) == [ReceiptHandleExpired]
    assert await counts(store, queue) == (1, 0, 0)


async def test_a_released_receipt_is_expired_on_a_fifo_queue(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    await release(store, queue, message)
    assert await hide(store, queue, message, lease_ms=30_000) == [ReceiptHandleExpired]
    assert await counts(store, queue) == (1, 0, 0)


@on_both_kinds
async def test_a_message_that_is_gone_cannot_be_hidden(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    await delete(store, queue, message)
    assert await hide(store, queue, message, lease_ms=30_000) == [MessageDoesNotExist]
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
async def test_a_lease_ends_at_most_so_long_after_it_began(
    store: Store, clock: ManualClock, limits: Limits, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    message = await lease_one(store, queue, lease_ms=HOUR_MS)
    assert await hide(store, queue, message, lease_ms=limits.lease_ms_max) == [None]
    await clock.advance(ms=10 * HOUR_MS)
    remaining_ms = limits.lease_ms_max - 10 * HOUR_MS
    assert await hide(store, queue, message, lease_ms=remaining_ms + 1) == [InvalidParameter]
    assert await hide(store, queue, message, lease_ms=remaining_ms) == [None]


@on_both_kinds
async def test_a_refused_change_changes_nothing(store: Store, clock: ManualClock, limits: Limits, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    message = await lease_one(store, queue, lease_ms=30_000)
    await clock.advance(ms=1)
    assert await hide(store, queue, message, lease_ms=limits.lease_ms_max) == [InvalidParameter]
    await clock.advance(ms=29_999)
    assert await lease_bodies(store, queue) == ["a"]


@on_both_kinds
async def test_a_new_lease_begins_anew(store: Store, clock: ManualClock, limits: Limits, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    await lease_one(store, queue, lease_ms=HOUR_MS)
    await clock.advance(ms=HOUR_MS)
    again = await lease_one(store, queue)
    assert await hide(store, queue, again, lease_ms=limits.lease_ms_max) == [None]


async def test_each_entry_is_judged_by_itself(store: Store, limits: Limits) -> None:
    queue = await make_queue(store)
    await send(store, queue, "gone", "late", "good", "hidden")
    by_body = {message.body: message for message in await lease(store, queue)}
    await delete(store, queue, by_body["gone"])
    wishes = {"gone": 1, "late": limits.lease_ms_max + 1, "good": 0, "hidden": 1}
    changes = [VisibilityChange(receipt_of(queue, by_body[body]), lease_ms) for body, lease_ms in wishes.items()]
    answers = await store.change_visibility(queue, changes)
    assert kinds(answers) == [MessageDoesNotExist, InvalidParameter, None, None]
    assert await lease_bodies(store, queue) == ["good"]


async def test_a_change_may_unblock_a_group(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", "b")
    [head] = await lease(store, queue, 1)
    await hide(store, queue, head, lease_ms=0)
    assert await lease_bodies(store, queue) == ["a", "b"]


@on_both_kinds
async def test_a_change_survives_a_restart(
    store: Store, clock: ManualClock, limits: Limits, reopen: Reopen, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    message = await lease_one(store, queue, lease_ms=30_000)
    await hide(store, queue, message, lease_ms=HOUR_MS)
    store = await reopen()
    await clock.advance(ms=HOUR_MS - 1)
    assert await lease_bodies(store, queue) == []
    assert await hide(store, queue, message, lease_ms=limits.lease_ms_max) == [InvalidParameter]
