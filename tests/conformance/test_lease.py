"""Leasing: what is delivered, how often, and for how long it is hidden."""

from __future__ import annotations

import pytest

from penstock.domain.errors import OverLimit
from penstock.domain.limits import Limits
from penstock.domain.queue import Queue
from penstock.store.port import FULL_AGAIN_MS, Leased, Store
from penstock.testing import ManualClock
from tests.support.queues import (
    GROUP,
    bodies,
    delete,
    hide,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    release,
    send,
    with_limits,
)


@on_both_kinds
async def test_a_leased_message_is_hidden_until_its_lease_is_over(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    assert await lease_bodies(store, queue, lease_ms=30_000) == ["a"]
    await clock.advance(ms=29_999)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


async def test_a_lease_gives_at_most_what_was_asked_for(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", "b", "c")
    assert await lease_bodies(store, queue, 2) == ["a", "b"]
    assert await lease_bodies(store, queue, 2) == ["c"]


async def test_redelivered_messages_come_before_younger_ones(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", "b", "c")
    first = await lease(store, queue, 3, lease_ms=30_000)
    await clock.advance(seconds=10)
    await send(store, queue, "d", "e")
    for message in reversed(first):
        await hide(store, queue, message, lease_ms=0)
        await clock.advance(ms=1)
    assert await lease_bodies(store, queue, 4, lease_ms=10_000) == ["a", "b", "c", "d"]
    await clock.advance(seconds=10)
    await send(store, queue, "f")
    assert await lease_bodies(store, queue) == ["a", "b", "c", "d", "e", "f"]


async def test_released_messages_come_before_younger_ones(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    await clock.advance(ms=1)
    await send(store, queue, "b")
    await clock.advance(ms=1)
    await release(store, queue, message)
    assert await lease_bodies(store, queue, 1) == ["a"]


async def test_redelivered_messages_of_one_tenant_come_before_its_younger_ones(
    store: Store, clock: ManualClock
) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", "a2", group="a")
    first, second = await lease(store, queue)
    await clock.advance(ms=1)
    await send(store, queue, "a3", group="a")
    for message in (second, first):
        await clock.advance(ms=1)
        await hide(store, queue, message, lease_ms=0)
    assert await lease_bodies(store, queue) == ["a1", "a2", "a3"]


async def test_standard_messages_come_oldest_first(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    for body in "abcde":
        await send(store, queue, body)
        await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == list("abcde")


@on_both_kinds
async def test_every_delivery_has_a_greater_receipt(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    receipts = []
    for _ in range(4):
        message = await lease_one(store, queue, lease_ms=1_000)
        receipts.append(message.receipt)
        await clock.advance(ms=1_000)
    await release(store, queue, await lease_one(store, queue))
    receipts.append((await lease_one(store, queue)).receipt)
    assert receipts == sorted(set(receipts))


@on_both_kinds
async def test_receive_count_and_first_receive_tell_the_messages_history(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name)
    sent_at_ms = clock.now_ms()
    await send(store, queue, "a")
    await clock.advance(seconds=1)
    first_ms = clock.now_ms()
    for count in (1, 2, 3):
        message = await lease_one(store, queue, lease_ms=1_000)
        assert (message.receive_count, message.first_received_at_ms) == (count, first_ms)
        assert message.sent_at_ms == sent_at_ms
        await clock.advance(seconds=1)


@on_both_kinds
async def test_a_lease_of_no_time_delivers_once_in_a_call_and_leaves_the_messages_visible(
    store: Store, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    first = await lease(store, queue, lease_ms=0)
    second = await lease(store, queue, lease_ms=0)
    assert bodies(first) == bodies(second) == ["a", "b"]
    assert [message.receive_count for message in second] == [2, 2]
    assert all(later.receipt > earlier.receipt for earlier, later in zip(first, second, strict=True))


@on_both_kinds
async def test_an_empty_queue_gives_nothing_and_nothing_is_coming(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    assert await store.lease(queue, count=10, lease_ms=30_000) == Leased([], None)


@on_both_kinds
async def test_an_empty_lease_says_when_to_look_again(store: Store, clock: ManualClock, name: str) -> None:
    """It may say too early an instant, so long as following it ends, after a few looks, at the right one."""
    queue = await make_queue(store, name)
    await send(store, queue, "leased", group="1")
    await lease(store, queue, lease_ms=20_000)
    await send(store, queue, "delayed", group="2", delay_ms=5_000)
    start_ms = clock.now_ms()
    assert await follow(store, clock, queue, looks_max=3) == ["delayed"]
    assert clock.now_ms() - start_ms == 5_000
    assert await follow(store, clock, queue, looks_max=3) == ["leased"]
    assert clock.now_ms() - start_ms == 20_000


async def test_an_empty_lease_on_a_blocked_group_says_when_the_group_is_free(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", "b")
    await lease(store, queue, 1, lease_ms=20_000)
    start_ms = clock.now_ms()
    assert await follow(store, clock, queue, looks_max=3) == ["a", "b"]
    assert clock.now_ms() - start_ms == 20_000


async def follow(store: Store, clock: ManualClock, queue: Queue, *, looks_max: int) -> list[str]:
    """Lease for ever, looking again only when told to, and say what came."""
    for _ in range(looks_max):
        leased = await store.lease(queue, count=10, lease_ms=3_600_000)
        if leased.messages:
            return bodies(leased.messages)
        assert leased.next_in_ms is not None
        assert leased.next_in_ms > 0
        await clock.advance(ms=leased.next_in_ms)
    raise AssertionError(f"nothing came after {looks_max} looks")


def test_as_many_messages_may_be_in_flight_as_on_sqs() -> None:
    assert (Limits().in_flight_standard_max, Limits().in_flight_fifo_max) == (120_000, 120_000)


@on_both_kinds
@with_limits(in_flight_standard_max=3, in_flight_fifo_max=3)
async def test_a_lease_stays_within_the_in_flight_limit(store: Store, clock: ManualClock, name: str) -> None:
    """At the limit a standard queue refuses, while a FIFO queue gives nothing and says when to look again."""
    queue = await make_queue(store, name)
    for group in "abcde":
        await send(store, queue, group, group=group)
    first = await lease(store, queue, 2)
    assert len(first) == 2
    assert len(await lease(store, queue, 2)) == 1
    if queue.fifo:
        assert await store.lease(queue, count=2, lease_ms=30_000) == Leased([], FULL_AGAIN_MS)
    else:
        with pytest.raises(OverLimit):
            await lease(store, queue, 2)
    await delete(store, queue, first[0])
    assert len(await lease(store, queue, 2)) == 1
    await clock.advance(ms=30_000)
    assert len(await lease(store, queue, 10)) == 3


@with_limits(in_flight_standard_max=2, in_flight_fifo_max=1)
async def test_each_kind_of_queue_has_its_own_in_flight_limit(store: Store) -> None:
    standard, fifo = await make_queue(store, "orders"), await make_queue(store, "orders.fifo")
    for queue in (standard, fifo):
        await send(store, queue, "a", "b", "c", group=GROUP)
    assert len(await lease(store, standard)) == 2
    assert len(await lease(store, fifo)) == 1


@with_limits(in_flight_standard_max=2)
async def test_leases_of_other_queues_do_not_count_towards_the_limit(store: Store) -> None:
    full, other = await make_queue(store, "full"), await make_queue(store, "other")
    for queue in (full, other):
        await send(store, queue, "a", "b")
    assert await lease_bodies(store, full) == ["a", "b"]
    assert await lease_bodies(store, other) == ["a", "b"]


async def test_a_lease_skips_what_is_hidden_and_finds_what_is_behind_it(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, *(f"leased-{number}" for number in range(40)))
    await lease(store, queue, 40)
    await send(store, queue, "delayed", delay_ms=1_000)
    await send(store, queue, "visible")
    assert await lease_bodies(store, queue) == ["visible"]
