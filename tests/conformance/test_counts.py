"""Counts: each message is visible, in flight or delayed, and time alone moves it between them."""

from __future__ import annotations

import asyncio

from penstock.domain.clock import SystemClock
from penstock.domain.limits import HOUR_MS
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    GROUP,
    counts,
    dead_letters_to,
    delete,
    hide,
    lease,
    make_queue,
    on_both_kinds,
    send,
)
from tests.support.stores import Home, Reopen


@on_both_kinds
async def test_messages_are_counted_by_what_hides_them(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    assert await counts(store, queue) == (0, 0, 0)
    await send(store, queue, "a", "b", "c", "d", group=GROUP)
    assert await counts(store, queue) == (4, 0, 0)
    await send(store, queue, "e", group=GROUP, delay_ms=1_000)
    assert await counts(store, queue) == (4, 0, 1)
    leased = await lease(store, queue, 3)
    assert await counts(store, queue) == (1, 3, 1)
    await delete(store, queue, leased[0])
    assert await counts(store, queue) == (1, 2, 1)
    await hide(store, queue, leased[1], lease_ms=0)
    assert await counts(store, queue) == (2, 1, 1)


@on_both_kinds
async def test_a_count_asked_for_after_an_answer_includes_its_effect(home: Home, name: str) -> None:
    """Also while time flows, when a count might be believed for a while."""
    store = await home.open(clock=SystemClock())
    queue = await make_queue(store, name)
    for sent in range(1, 21):
        await send(store, queue, str(sent), group=str(sent))
        assert await counts(store, queue) == (sent, 0, 0)
    leased = await lease(store, queue, 5)
    assert await counts(store, queue) == (15, 5, 0)
    await delete(store, queue, *leased)
    assert await counts(store, queue) == (15, 0, 0)


@on_both_kinds
async def test_a_count_that_is_under_way_does_not_answer_for_what_comes_later(home: Home, name: str) -> None:
    store = await home.open(clock=SystemClock())
    queue = await make_queue(store, name)
    for sent in range(1, 11):
        under_way = asyncio.create_task(counts(store, queue))
        await send(store, queue, str(sent), group=str(sent))
        assert await counts(store, queue) == (sent, 0, 0)
        await under_way


@on_both_kinds
async def test_a_delay_that_is_over_moves_a_message_from_delayed_to_visible(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", delay_ms=1_000)
    await clock.advance(ms=999)
    assert await counts(store, queue) == (0, 0, 2)
    await clock.advance(ms=1)
    assert await counts(store, queue) == (2, 0, 0)


@on_both_kinds
async def test_a_lease_that_is_over_moves_a_message_from_in_flight_to_visible(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    await lease(store, queue, lease_ms=30_000)
    await clock.advance(ms=29_999)
    assert await counts(store, queue) == (0, 2, 0)
    await clock.advance(ms=1)
    assert await counts(store, queue) == (2, 0, 0)


async def test_a_message_that_was_delayed_once_is_not_delayed_again_by_a_lease(
    store: Store, clock: ManualClock
) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", delay_ms=1_000)
    await clock.advance(seconds=1)
    [message] = await lease(store, queue)
    assert await counts(store, queue) == (0, 1, 0)
    await hide(store, queue, message, lease_ms=HOUR_MS)
    assert await counts(store, queue) == (0, 1, 0)


@on_both_kinds
async def test_a_lease_of_no_time_leaves_the_counts(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    await lease(store, queue, lease_ms=0)
    assert await counts(store, queue) == (2, 0, 0)


@on_both_kinds
async def test_a_dead_letter_is_counted_where_it_went(store: Store, clock: ManualClock, name: str) -> None:
    dead = await make_queue(store, name.replace("orders", "dead"))
    queue = await make_queue(store, name, redrive=dead_letters_to(dead.name.name, after=1))
    await send(store, queue, "a")
    await lease(store, queue)
    await clock.advance(seconds=30)
    await lease(store, queue)
    assert await counts(store, queue) == (0, 0, 0)
    assert await counts(store, dead) == (1, 0, 0)


@on_both_kinds
async def test_expired_messages_are_not_counted_once_they_are_swept(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "a", "b", "c", group=GROUP)
    await lease(store, queue, 1, lease_ms=HOUR_MS)
    await send(store, queue, "d", group=GROUP, delay_ms=900_000)
    await clock.advance(seconds=60)
    await send(store, queue, "e", group=GROUP)
    while await store.sweep():
        pass
    assert await counts(store, queue) == (1, 0, 0)


@on_both_kinds
async def test_a_duplicate_delete_counts_once(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    leased = await lease(store, queue)
    await delete(store, queue, leased[0], leased[0])
    await delete(store, queue, leased[0])
    assert await counts(store, queue) == (0, 1, 0)


@on_both_kinds
async def test_counts_survive_a_restart(store: Store, clock: ManualClock, reopen: Reopen, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", "c", group=GROUP)
    await send(store, queue, "d", group=GROUP, delay_ms=60_000)
    await lease(store, queue, 1)
    store = await reopen()
    assert await counts(store, queue) == (2, 1, 1)
    await clock.advance(seconds=30)
    assert await counts(store, queue) == (3, 0, 1)
    store = await reopen()
    await clock.advance(seconds=30)
    assert await counts(store, queue) == (4, 0, 0)
