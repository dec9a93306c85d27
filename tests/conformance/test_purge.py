"""Purging: all messages go, and with them what was kept to tell them apart; everything else goes on."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.errors import MessageDoesNotExist, PurgeInProgress
from penstock.domain.limits import Limits
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    GROUP,
    attempt_key,
    counts,
    delete,
    draft,
    hide,
    lease,
    lease_bodies,
    make_queue,
    on_both_kinds,
    release,
    send,
    with_limits,
)
from tests.support.stores import Reopen


@on_both_kinds
async def test_visible_leased_and_delayed_messages_all_go(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "leased", "visible", group=GROUP)
    await send(store, queue, "delayed", group=GROUP, delay_ms=10_000)
    await lease(store, queue, 1, lease_ms=10_000)
    await store.purge_queue(queue)
    assert await counts(store, queue) == (0, 0, 0)
    assert await lease_bodies(store, queue) == []
    await clock.advance(seconds=10)
    assert await counts(store, queue) == (0, 0, 0)
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_messages_sent_after_a_purge_stay(store: Store, name: str) -> None:
    """Even if they are sent in the same millisecond, and the sweeper clears up after the purge."""
    queue = await make_queue(store, name)
    await send(store, queue, "before", group=GROUP)
    await store.purge_queue(queue)
    await send(store, queue, "after", group=GROUP)
    while await store.sweep():
        pass
    assert await counts(store, queue) == (1, 0, 0)
    assert await lease_bodies(store, queue) == ["after"]


async def test_other_queues_keep_their_messages(store: Store) -> None:
    orders, invoices = await make_queue(store, "orders"), await make_queue(store, "invoices")
    await send(store, orders, "a")
    await send(store, invoices, "b")
    await store.purge_queue(orders)
    assert await lease_bodies(store, invoices) == ["b"]


@on_both_kinds
async def test_receipts_of_purged_messages_name_messages_that_are_gone(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", group=GROUP)
    [message] = await lease(store, queue)
    await store.purge_queue(queue)
    assert await delete(store, queue, message) == [None]
    assert await hide(store, queue, message, lease_ms=0) == [MessageDoesNotExist]
    await release(store, queue, message)
    assert await counts(store, queue) == (0, 0, 0)
    assert await lease_bodies(store, queue) == []


async def test_a_purge_unblocks_a_group(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    await lease(store, queue)
    await store.purge_queue(queue)
    await send(store, queue, "b")
    assert await lease_bodies(store, queue) == ["b"]


@on_both_kinds
@with_limits(in_flight_standard_max=1, in_flight_fifo_max=1)
async def test_a_purge_makes_room_in_flight(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", group=GROUP)
    await lease(store, queue)
    await store.purge_queue(queue)
    await send(store, queue, "b", group=GROUP)
    assert await lease_bodies(store, queue) == ["b"]


@pytest.mark.parametrize("swept", [False, True], ids=["unswept", "swept"])
async def test_a_purge_ends_the_windows_of_deduplication(store: Store, reopen: Reopen, swept: bool) -> None:
    """As SQS does. The windows of what is sent afterwards begin anew, those of other queues go on."""
    queue, other = await make_queue(store, "orders.fifo"), await make_queue(store, "others.fifo")
    [first] = await send(store, queue, "a", deduplication_id="1")
    theirs = await send(store, other, "a", deduplication_id="1")
    await store.purge_queue(queue)
    while swept and await store.sweep():
        pass
    store = await reopen()
    [second] = await send(store, queue, "b", deduplication_id="1")
    assert second.message_id != first.message_id
    assert await send(store, queue, "c", deduplication_id="1") == [second]
    assert await send(store, other, "b", deduplication_id="1") == theirs
    assert await lease_bodies(store, queue) == ["b"]
    assert await counts(store, other) == (1, 0, 0)


@on_both_kinds
async def test_outcomes_go_on(store: Store, name: str) -> None:
    key = attempt_key("send")
    queue = await make_queue(store, name)
    first = await store.append(queue, [draft("a", group=GROUP)], attempt=key)
    await store.purge_queue(queue)
    while await store.sweep():
        pass
    assert await store.append(queue, [draft("a", group=GROUP)], attempt=key) == first
    assert await counts(store, queue) == (0, 0, 0)


async def test_sequence_numbers_go_on(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    [before] = await send(store, queue, "a")
    await store.purge_queue(queue)
    while await store.sweep():
        pass
    [after] = await send(store, queue, "b")
    assert before.sequence is not None
    assert after.sequence is not None
    assert after.sequence > before.sequence


async def test_the_next_purge_is_refused_for_a_while(store: Store, clock: ManualClock, limits: Limits) -> None:
    queue, other = await make_queue(store, "orders"), await make_queue(store, "other")
    await store.purge_queue(queue)
    await send(store, queue, "a")
    await clock.advance(ms=limits.purge_interval_ms - 1)
    with pytest.raises(PurgeInProgress):
        await store.purge_queue(queue)
    assert await counts(store, queue) == (1, 0, 0)
    await store.purge_queue(other)
    await clock.advance(ms=1)
    await store.purge_queue(queue)
    assert await counts(store, queue) == (0, 0, 0)


@with_limits(purge_interval_ms=0)
async def test_every_purge_may_be_let_through(store: Store) -> None:
    queue = await make_queue(store)
    for _ in range(3):
        await send(store, queue, "a")
        await store.purge_queue(queue)
        assert await counts(store, queue) == (0, 0, 0)


async def test_of_purges_at_the_same_time_one_is_let_through(store: Store) -> None:
    queue = await make_queue(store)
    answers = await asyncio.gather(*(store.purge_queue(queue) for _ in range(5)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["NoneType"] + ["PurgeInProgress"] * 4


@on_both_kinds
async def test_a_purge_survives_a_restart(store: Store, clock: ManualClock, reopen: Reopen, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "before", group=GROUP)
    await store.purge_queue(queue)
    await send(store, queue, "after", group=GROUP)
    store = await reopen()
    with pytest.raises(PurgeInProgress):
        await store.purge_queue(queue)
    assert await counts(store, queue) == (1, 0, 0)
    assert await lease_bodies(store, queue) == ["after"]


async def test_a_purge_does_not_count_as_a_change_of_the_queue(store: Store) -> None:
    queue = await make_queue(store)
    await store.purge_queue(queue)
    assert await store.find_queue(queue.name) == queue
