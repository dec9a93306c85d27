"""FIFO queues: order within a group, and groups that wait while one of theirs is leased."""

from __future__ import annotations

from penstock.domain.message import Draft
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    bodies,
    delete,
    draft,
    hide,
    lease,
    lease_bodies,
    make_queue,
    release,
    send,
)
from tests.support.stores import Reopen


def of(group: str, *texts: str) -> list[Draft]:
    return [draft(text, group=group) for text in texts]


async def test_order_is_by_sequence_and_not_by_time(store: Store) -> None:
    """All of these are sent in the same millisecond."""
    queue = await make_queue(store, "orders.fifo")
    texts = [str(number) for number in range(50)]
    for text in texts:
        await send(store, queue, text)
    assert await lease_bodies(store, queue, 50) == texts


async def test_sequences_grow_within_and_across_batches(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    sent = [*await send(store, queue, "a", "b"), *await send(store, queue, "c")]
    sequences = [answer.sequence for answer in sent if answer.sequence is not None]
    assert len(sequences) == 3
    assert sequences == sorted(set(sequences))


async def test_sequences_grow_across_restarts_and_purges(store: Store, reopen: Reopen) -> None:
    queue = await make_queue(store, "orders.fifo")
    sent = await send(store, queue, "a")
    await store.purge_queue(queue)
    while await store.sweep():
        pass
    store = await reopen()
    sent += await send(store, queue, "b")
    store = await reopen()
    sent += await send(store, queue, "c")
    sequences = [answer.sequence for answer in sent if answer.sequence is not None]
    assert len(sequences) == 3
    assert sequences == sorted(set(sequences))


async def test_sequences_grow_past_messages_that_were_deleted(store: Store, reopen: Reopen) -> None:
    queue = await make_queue(store, "orders.fifo")
    [first] = await send(store, queue, "a")
    await delete(store, queue, *await lease(store, queue))
    store = await reopen()
    [second] = await send(store, queue, "b")
    assert first.sequence is not None
    assert second.sequence is not None
    assert second.sequence > first.sequence


async def test_several_messages_of_one_group_come_in_one_lease(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1"), *of("y", "y1"), *of("x", "x2"), *of("y", "y2"))
    assert await lease_bodies(store, queue) in (["x1", "x2", "y1", "y2"], ["y1", "y2", "x1", "x2"])


async def test_a_group_is_blocked_while_any_of_its_messages_is_leased(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, x2 = await lease(store, queue, 2)
    assert await lease_bodies(store, queue) == []
    await delete(store, queue, x1)
    assert await lease_bodies(store, queue) == []
    await delete(store, queue, x2)
    assert await lease_bodies(store, queue) == ["x3"]


async def test_other_groups_are_served_while_one_is_blocked(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2"), *of("y", "y1"))
    assert await lease_bodies(store, queue, 1) == ["x1"]
    assert await lease_bodies(store, queue) == ["y1"]


async def test_a_lapsed_lease_brings_the_group_back_from_its_head(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    await lease(store, queue, 2, lease_ms=10_000)
    await clock.advance(seconds=10)
    assert await lease_bodies(store, queue) == ["x1", "x2", "x3"]


async def test_a_message_made_visible_early_still_waits_for_its_group(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2"))
    _, x2 = await lease(store, queue, lease_ms=10_000)
    await hide(store, queue, x2, lease_ms=0)
    assert await lease_bodies(store, queue) == []
    await clock.advance(seconds=10)
    assert await lease_bodies(store, queue) == ["x1", "x2"]


async def test_a_head_made_visible_early_comes_again_once_the_rest_is_free(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, x2 = await lease(store, queue, 2)
    await hide(store, queue, x1, lease_ms=0)
    assert await lease_bodies(store, queue) == []
    await delete(store, queue, x2)
    assert await lease_bodies(store, queue) == ["x1", "x3"]


async def test_a_later_message_of_the_group_that_stays_leased_blocks_it(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2"))
    _, x2 = await lease(store, queue, lease_ms=10_000)
    await hide(store, queue, x2, lease_ms=20_000)
    await clock.advance(ms=19_999)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["x1", "x2"]


async def test_a_released_group_comes_again_in_order(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, x2 = await lease(store, queue, 2)
    await release(store, queue, x2)
    assert await lease_bodies(store, queue) == []
    await release(store, queue, x1)
    assert await lease_bodies(store, queue) == ["x1", "x2", "x3"]


async def test_a_lease_of_no_time_does_not_block_the_group(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2"))
    assert await lease_bodies(store, queue, 1, lease_ms=0) == ["x1"]
    assert await lease_bodies(store, queue) == ["x1", "x2"]


async def test_a_delayed_message_holds_back_its_group_only(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, draft("x1", group="x", delay_ms=5_000), *of("x", "x2"), *of("y", "y1"))
    assert await lease_bodies(store, queue) == ["y1"]
    await clock.advance(ms=4_999)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["x1", "x2"]


async def test_a_delayed_message_does_not_hold_back_what_is_before_it(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1"), draft("x2", group="x", delay_ms=5_000), *of("x", "x3"))
    first = await lease(store, queue)
    assert bodies(first) == ["x1"]
    await delete(store, queue, *first)
    assert await lease_bodies(store, queue) == []
    await clock.advance(seconds=5)
    assert await lease_bodies(store, queue) == ["x2", "x3"]


async def test_an_expired_head_does_not_hold_back_its_group(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo", retention_s=60)
    await send(store, queue, *of("x", "x1"))
    await clock.advance(seconds=30)
    await send(store, queue, *of("x", "x2"))
    await clock.advance(seconds=30)
    assert await lease_bodies(store, queue) == ["x2"]


async def test_an_expired_message_that_is_leased_does_not_block_its_group(store: Store, clock: ManualClock) -> None:
    """Nothing shows an expired message any more, so nobody could tell what the group waits for."""
    queue = await make_queue(store, "orders.fifo", retention_s=60)
    await send(store, queue, *of("x", "x1"))
    await lease(store, queue, lease_ms=3_600_000)
    await clock.advance(seconds=30)
    await send(store, queue, *of("x", "x2"))
    await clock.advance(seconds=30)
    while await store.sweep():
        pass
    assert await lease_bodies(store, queue) == ["x2"]


async def test_a_group_of_one_queue_does_not_block_its_namesake_in_another(store: Store) -> None:
    orders, invoices = await make_queue(store, "orders.fifo"), await make_queue(store, "invoices.fifo")
    await send(store, orders, *of("x", "order-1", "order-2"))
    await send(store, invoices, *of("x", "invoice-1"))
    assert await lease_bodies(store, orders, 1) == ["order-1"]
    assert await lease_bodies(store, invoices) == ["invoice-1"]


async def test_groups_beyond_the_first_few_blocked_ones_are_found(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    for number in range(40):
        await send(store, queue, *of(f"blocked-{number}", "head", "tail"))
    for _ in range(40):
        await lease(store, queue, 1)
    await send(store, queue, *of("free", "found"))
    assert await lease_bodies(store, queue) == ["found"]


async def test_order_survives_a_restart_and_so_does_a_blocked_group(
    store: Store, clock: ManualClock, reopen: Reopen
) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    await lease(store, queue, 1, lease_ms=10_000)
    store = await reopen()
    assert await lease_bodies(store, queue) == []
    await clock.advance(seconds=10)
    assert await lease_bodies(store, queue) == ["x1", "x2", "x3"]
