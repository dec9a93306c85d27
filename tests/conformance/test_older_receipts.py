"""Receipts from before the last receive: on a standard queue they keep working as long as the message is there.

On FIFO queues they are expired. What is recorded of Amazon SQS is said so.
"""

from __future__ import annotations

import pytest

from penstock.domain.errors import InvalidParameter, MessageDoesNotExist, ReceiptHandleExpired
from penstock.domain.limits import HOUR_MS, Limits
from penstock.domain.message import Message, Receipt, VisibilityChange
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.moves import run_moves
from tests.support.queues import (
    attempt_key,
    bodies,
    counts,
    dead_letters_to,
    delete,
    hide,
    kinds,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    receipt_of,
    release,
    send,
)
from tests.support.stores import Reopen


async def receive_twice(store: Store, clock: ManualClock, queue: Queue) -> tuple[Message, Message]:
    """Receive the one message of a queue, let its lease end, and receive it again."""
    older = await lease_one(store, queue, lease_ms=30_000)
    await clock.advance(seconds=30)
    return older, await lease_one(store, queue, lease_ms=30_000)


async def test_an_older_receipt_makes_a_message_visible_at_once(store: Store) -> None:
    """As recorded: received with a timeout of 0 and again with one of 3, and changed to 0 by the first handle."""
    queue = await make_queue(store)
    await send(store, queue, "a")
    older = await lease_one(store, queue, lease_ms=0)
    await lease_one(store, queue, lease_ms=3_000)
    assert await lease_bodies(store, queue) == []
    assert await hide(store, queue, older, lease_ms=0) == [None]
    assert await counts(store, queue) == (1, 0, 0)
    assert await lease_bodies(store, queue) == ["a"]


async def test_a_second_change_to_zero_succeeds(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    assert await hide(store, queue, message, lease_ms=0) == [None]
    assert await hide(store, queue, message, lease_ms=0) == [None]
    assert await counts(store, queue) == (1, 0, 0)
    assert await lease_bodies(store, queue) == ["a"]


async def test_a_receipt_hides_its_message_again_after_the_lease(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", "b")
    message = await lease_one(store, queue, lease_ms=30_000)
    await clock.advance(seconds=30)
    assert await hide(store, queue, message, lease_ms=10_000) == [None]
    assert await counts(store, queue) == (1, 1, 0)
    assert await lease_bodies(store, queue) == ["b"]
    await clock.advance(ms=9_999)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


@pytest.mark.parametrize("lease_ms", [60_000, 5_000], ids=["later", "earlier"])
async def test_an_older_receipt_moves_the_end_of_the_present_lease(
    store: Store, clock: ManualClock, lease_ms: int
) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    older, newer = await receive_twice(store, clock, queue)
    assert await hide(store, queue, older, lease_ms=lease_ms) == [None]
    assert await counts(store, queue) == (0, 1, 0)
    await clock.advance(ms=lease_ms - 1)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    again = await lease_one(store, queue)
    assert (again.receive_count, again.receipt > newer.receipt) == (3, True)


async def test_an_older_receipt_deletes(store: Store, clock: ManualClock, reopen: Reopen) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    older, newer = await receive_twice(store, clock, queue)
    assert await delete(store, queue, older) == [None]
    assert await counts(store, queue) == (0, 0, 0)
    assert await delete(store, queue, newer) == [None]
    assert await hide(store, queue, newer, lease_ms=0) == [MessageDoesNotExist]
    store = await reopen()
    await clock.advance(seconds=60)
    assert await lease_bodies(store, queue) == []


async def test_an_older_receipt_deletes_what_is_visible(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", "b")
    older, _ = await receive_twice(store, clock, queue)
    await clock.advance(seconds=30)
    assert await delete(store, queue, older, older) == [None, None]
    assert await counts(store, queue) == (1, 0, 0)
    assert await lease_bodies(store, queue) == ["b"]


async def test_the_receipt_of_a_released_delivery_works_too(store: Store) -> None:
    """Nobody should have it; but whoever has it was given the message, and a delete that succeeds must be one."""
    queue = await make_queue(store)
    await send(store, queue, "a", "b")
    a, b = await lease(store, queue)
    await release(store, queue, a, b)
    assert await hide(store, queue, a, lease_ms=30_000) == [None]
    assert await delete(store, queue, b) == [None]
    assert await counts(store, queue) == (0, 1, 0)


async def test_an_older_receipt_releases_nothing(store: Store, clock: ManualClock) -> None:
    """Only who holds a message can give it back: a release takes a receive off the count."""
    queue = await make_queue(store)
    await send(store, queue, "a")
    older, _ = await receive_twice(store, clock, queue)
    await release(store, queue, older)
    assert await counts(store, queue) == (0, 1, 0)


@pytest.mark.parametrize("lease_ms", [0, 60_000])
async def test_an_older_receipt_is_expired_on_a_fifo_queue(store: Store, clock: ManualClock, lease_ms: int) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    older, newer = await receive_twice(store, clock, queue)
    assert await hide(store, queue, older, lease_ms=lease_ms) == [ReceiptHandleExpired]
    assert await delete(store, queue, older) == [ReceiptHandleExpired]
    assert await counts(store, queue) == (0, 1, 0)
    assert await delete(store, queue, newer) == [None]


async def test_the_longest_lease_is_counted_from_the_last_receive(
    store: Store, clock: ManualClock, limits: Limits
) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    older = await lease_one(store, queue, lease_ms=HOUR_MS)
    await clock.advance(ms=HOUR_MS)
    await lease_one(store, queue, lease_ms=HOUR_MS)
    await clock.advance(ms=10 * HOUR_MS)
    remaining_ms = limits.lease_ms_max - 10 * HOUR_MS
    assert await hide(store, queue, older, lease_ms=remaining_ms + 1) == [InvalidParameter]
    assert await counts(store, queue) == (1, 0, 0)
    assert await hide(store, queue, older, lease_ms=remaining_ms) == [None]
    assert await counts(store, queue) == (0, 1, 0)


async def test_a_message_can_be_made_visible_however_long_ago_it_was_received(
    store: Store, clock: ManualClock, limits: Limits
) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    await clock.advance(ms=limits.lease_ms_max + 1)
    assert await hide(store, queue, message, lease_ms=1_000) == [InvalidParameter]
    assert await hide(store, queue, message, lease_ms=0) == [None]


async def test_a_receive_that_is_released_still_counts_for_the_longest_lease(
    store: Store, clock: ManualClock, limits: Limits
) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    older = await lease_one(store, queue, lease_ms=0)
    await clock.advance(seconds=1)
    await release(store, queue, await lease_one(store, queue))
    await clock.advance(seconds=1)
    assert await hide(store, queue, older, lease_ms=limits.lease_ms_max) == [InvalidParameter]
    assert await hide(store, queue, older, lease_ms=limits.lease_ms_max - 1_000) == [None]
    assert await counts(store, queue) == (0, 1, 0)


async def test_a_tenant_is_busy_with_what_an_older_receipt_hides(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", "a2", group="a")
    older = await lease_one(store, queue, lease_ms=1_000)
    await clock.advance(seconds=1)
    await send(store, queue, "b1", group="b")
    await hide(store, queue, older, lease_ms=60_000)
    assert await lease_bodies(store, queue) == ["b1", "a2"]


async def test_a_tenant_is_not_busy_with_what_an_older_receipt_reveals(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", "a2", group="a")
    older, _ = await receive_twice(store, clock, queue)
    await send(store, queue, "b1", "b2", group="b")
    await hide(store, queue, older, lease_ms=0)
    assert await lease_bodies(store, queue) == ["a1", "b1", "a2", "b2"]


async def test_what_an_older_receipt_hides_becomes_no_dead_letter_until_it_is_due(
    store: Store, clock: ManualClock
) -> None:
    dead = await make_queue(store, "dead")
    queue = await make_queue(store, redrive=dead_letters_to("dead", after=2))
    await send(store, queue, "a")
    older, _ = await receive_twice(store, clock, queue)
    await clock.advance(seconds=30)
    await hide(store, queue, older, lease_ms=10_000)
    assert await lease_bodies(store, queue) == []
    assert await counts(store, dead) == (0, 0, 0)
    await hide(store, queue, older, lease_ms=0)
    assert await lease_bodies(store, queue) == []
    assert await counts(store, dead) == (1, 0, 0)


async def test_a_receipt_does_not_follow_its_message_to_the_dead_letter_queue_and_back(
    store: Store, clock: ManualClock
) -> None:
    dead = await make_queue(store, "dead")
    queue = await make_queue(store, redrive=dead_letters_to("dead", after=1))
    await send(store, queue, "a")
    from_source = await lease_one(store, queue, lease_ms=0)
    assert await lease_bodies(store, queue) == []
    older = [receipt_of(queue, from_source)]
    for each in (queue, dead):
        await change_nothing(store, each, older)
    older.append(receipt_of(dead, await lease_one(store, dead, lease_ms=0)))
    await store.start_move("task", dead, None, None)
    await run_moves(store, clock)
    for each in (queue, dead):
        await change_nothing(store, each, older)
    assert await counts(store, queue) == (1, 0, 0)


async def change_nothing(store: Store, queue: Queue, receipts: list[Receipt]) -> None:
    """Use receipts of whatever queue on this one, where they name nothing."""
    before = await counts(store, queue)
    changed = await store.change_visibility(queue, [VisibilityChange(receipt, 30_000) for receipt in receipts])
    assert kinds(changed) == [MessageDoesNotExist] * len(receipts)
    assert await store.delete(queue, receipts) == [None] * len(receipts)
    assert await counts(store, queue) == before


async def test_a_receipt_from_before_a_purge_names_nothing(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    message = await lease_one(store, queue)
    await store.purge_queue(queue)
    await send(store, queue, "b")
    await lease_one(store, queue)
    await change_nothing(store, queue, [receipt_of(queue, message)])


async def test_an_older_receipt_of_an_expired_message_names_nothing(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, retention_s=60)
    await send(store, queue, "a")
    older, _ = await receive_twice(store, clock, queue)
    await clock.advance(seconds=30)
    assert await hide(store, queue, older, lease_ms=0) == [MessageDoesNotExist]
    assert await lease_bodies(store, queue) == []


async def test_a_retried_receive_leaves_out_what_an_older_receipt_revealed(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", "b")
    older = await lease_one(store, queue, lease_ms=0)
    key = attempt_key("receive")
    first = await lease(store, queue, attempt=key)
    assert bodies(first) == ["a", "b"]
    await hide(store, queue, older, lease_ms=0)
    assert await lease(store, queue, attempt=key) == first[1:]


async def test_each_change_upon_one_message_builds_on_the_one_before(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    older, newer = await receive_twice(store, clock, queue)
    assert await hide(store, queue, newer, older, newer, lease_ms=5_000) == [None, None, None]
    assert await hide(store, queue, newer, older, lease_ms=0) == [None, None]
    assert await lease_bodies(store, queue) == ["a"]


async def test_what_an_older_receipt_did_survives_a_restart(store: Store, clock: ManualClock, reopen: Reopen) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", group="a")
    older, _ = await receive_twice(store, clock, queue)
    await clock.advance(seconds=30)
    await hide(store, queue, older, lease_ms=60_000)
    store = await reopen()
    assert await counts(store, queue) == (0, 1, 0)
    await hide(store, queue, older, lease_ms=0)
    store = await reopen()
    assert await lease_bodies(store, queue) == ["a"]
