"""Releasing deliveries that never reached their consumer."""

from __future__ import annotations

from penstock.domain.limits import HOUR_MS
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    counts,
    dead_letters_to,
    delete,
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
async def test_a_released_message_is_visible_at_once_and_was_not_received(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    first = await lease_one(store, queue, lease_ms=HOUR_MS)
    await release(store, queue, first)
    assert await counts(store, queue) == (1, 0, 0)
    again = await lease_one(store, queue)
    assert (again.body, again.receive_count) == ("a", 1)
    assert again.receipt > first.receipt


@on_both_kinds
async def test_a_release_takes_back_one_delivery_only(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    for _ in range(2):
        await lease_one(store, queue, lease_ms=1_000)
        await clock.advance(seconds=1)
    third = await lease_one(store, queue)
    await release(store, queue, third)
    await release(store, queue, third)
    assert (await lease_one(store, queue)).receive_count == 3


@on_both_kinds
async def test_stale_receipts_are_passed_over(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", group="1")
    await send(store, queue, "b", group="2")
    stale, gone = await lease(store, queue, lease_ms=1_000)
    await delete(store, queue, gone)
    await clock.advance(seconds=1)
    current = await lease_one(store, queue)
    await release(store, queue, stale, gone)
    assert await counts(store, queue) == (0, 1, 0)
    assert await delete(store, queue, current) == [None]
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
async def test_a_whole_batch_is_released(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", "c")
    await release(store, queue, *await lease(store, queue))
    assert await counts(store, queue) == (3, 0, 0)
    assert sorted(await lease_bodies(store, queue)) == ["a", "b", "c"]


@on_both_kinds
async def test_a_release_brings_a_message_no_nearer_to_the_dead_letter_queue(store: Store, name: str) -> None:
    dead = name.replace("orders", "dead")
    await make_queue(store, dead)
    queue = await make_queue(store, name, redrive=dead_letters_to(dead, after=1))
    await send(store, queue, "a")
    for _ in range(3):
        await release(store, queue, await lease_one(store, queue))
    assert await lease_bodies(store, queue) == ["a"]


@on_both_kinds
async def test_a_release_survives_a_restart(store: Store, reopen: Reopen, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    released = await lease_one(store, queue)
    await release(store, queue, released)
    store = await reopen()
    assert await counts(store, queue) == (1, 0, 0)
    again = await lease_one(store, queue)
    assert again.receive_count == 1
    assert again.receipt > released.receipt
