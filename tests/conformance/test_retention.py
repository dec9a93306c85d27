"""Retention: from its last instant on, no verb delivers a message, swept or not."""

from __future__ import annotations

from typing import Any

from penstock.domain.limits import DAY_MS
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    change_queue,
    counts,
    dead_letters_to,
    lease,
    lease_bodies,
    make_queue,
    on_both_kinds,
    send,
)
from tests.support.stores import Reopen


@on_both_kinds
async def test_a_message_is_delivered_up_to_its_last_millisecond(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "a")
    await clock.advance(ms=59_999)
    assert await lease_bodies(store, queue, lease_ms=0) == ["a"]
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_fourteen_days_pass_at_once(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=14 * DAY_MS // 1_000)
    await send(store, queue, "a")
    await clock.advance(ms=14 * DAY_MS - 1)
    assert await lease_bodies(store, queue, lease_ms=0) == ["a"]
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_expired_messages_are_skipped_for_those_behind_them(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, *(str(number) for number in range(50)))
    await clock.advance(seconds=30)
    await send(store, queue, "live")
    await clock.advance(seconds=30)
    assert await lease_bodies(store, queue) == ["live"]


@on_both_kinds
async def test_a_message_that_expires_while_leased_does_not_come_back(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "a")
    await clock.advance(seconds=50)
    assert await lease_bodies(store, queue, lease_ms=20_000) == ["a"]
    await clock.advance(seconds=20)
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_a_message_that_expires_while_delayed_never_comes(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "a", delay_ms=60_000)
    await clock.advance(seconds=60)
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_receives_do_not_prolong_a_messages_life(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "a")
    for _ in range(6):
        assert await lease_bodies(store, queue, lease_ms=10_000) == ["a"]
        await clock.advance(seconds=10)
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_a_shorter_retention_holds_for_messages_sent_before(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=3_600)
    await send(store, queue, "a")
    await clock.advance(seconds=60)
    queue = await change_queue(store, queue, retention_s=60)
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_a_longer_retention_holds_for_messages_sent_before(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "a")
    await clock.advance(seconds=59)
    queue = await change_queue(store, queue, retention_s=3_600)
    await clock.advance(seconds=3_540)
    assert not await store.sweep()
    assert await lease_bodies(store, queue) == ["a"]


async def queues_with_dead_letters(store: Store, name: str, **dead: Any) -> tuple[Queue, Queue]:
    target = await make_queue(store, name.replace("orders", "dead"), **dead)
    return await make_queue(store, name, redrive=dead_letters_to(target.name.name, after=1)), target


async def test_a_standard_dead_letter_is_as_old_as_its_message(store: Store, clock: ManualClock) -> None:
    queue, dead = await queues_with_dead_letters(store, "orders", retention_s=60)
    await send(store, queue, "a")
    await lease(store, queue, lease_ms=50_000)
    await clock.advance(seconds=50)
    await lease(store, queue)
    assert await lease_bodies(store, dead, lease_ms=0) == ["a"]
    await clock.advance(seconds=10)
    assert await lease_bodies(store, dead) == []


async def test_a_fifo_dead_letter_is_as_old_as_its_move(store: Store, clock: ManualClock) -> None:
    queue, dead = await queues_with_dead_letters(store, "orders.fifo", retention_s=60)
    await send(store, queue, "a")
    await lease(store, queue, lease_ms=50_000)
    await clock.advance(seconds=50)
    await lease(store, queue)
    await clock.advance(ms=59_999)
    assert await lease_bodies(store, dead, lease_ms=0) == ["a"]
    await clock.advance(ms=1)
    assert await lease_bodies(store, dead) == []


@on_both_kinds
async def test_an_expired_message_is_no_dead_letter(store: Store, clock: ManualClock, name: str) -> None:
    target = await make_queue(store, name.replace("orders", "dead"))
    queue = await make_queue(store, name, retention_s=60, redrive=dead_letters_to(target.name.name, after=1))
    await send(store, queue, "a")
    await lease(store, queue)
    await clock.advance(seconds=60)
    assert await lease_bodies(store, queue) == []
    assert await counts(store, target) == (0, 0, 0)


@on_both_kinds
async def test_retention_is_counted_through_a_restart(
    store: Store, clock: ManualClock, reopen: Reopen, name: str
) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "a")
    await clock.advance(seconds=30)
    store = await reopen()
    await clock.advance(ms=29_999)
    assert await lease_bodies(store, queue, lease_ms=0) == ["a"]
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == []
