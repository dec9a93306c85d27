"""FIFO queues: order within a group, which gives what comes before its first message that is hidden."""

from __future__ import annotations

import asyncio

from penstock.domain.message import Draft
from penstock.domain.move import MoveStatus
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.moves import latest, make_move_pair, run_moves
from tests.support.queues import (
    bodies,
    counts,
    dead_letters_to,
    delete,
    draft,
    hide,
    lease,
    lease_bodies,
    make_queue,
    release,
    send,
    with_limits,
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


async def test_nothing_comes_after_a_message_that_is_leased(store: Store, clock: ManualClock) -> None:
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


async def test_a_message_made_visible_early_still_waits_for_those_before_it(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2"))
    _, x2 = await lease(store, queue, lease_ms=10_000)
    await hide(store, queue, x2, lease_ms=0)
    assert await lease_bodies(store, queue) == []
    await clock.advance(seconds=10)
    assert await lease_bodies(store, queue) == ["x1", "x2"]


async def test_a_first_message_made_visible_comes_again_before_the_rest_is_done(store: Store) -> None:
    """As recorded: with three in flight, the first is made visible, and is delivered again at once and alone."""
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3", "x4"))
    x1, x2, x3 = await lease(store, queue, 3)
    await hide(store, queue, x1, lease_ms=0)
    assert await counts(store, queue) == (2, 2, 0)
    [again] = await lease(store, queue)
    assert (again.body, again.receive_count) == ("x1", 2)
    assert await lease_bodies(store, queue) == []
    assert await delete(store, queue, x2, x3) == [None, None]
    assert await lease_bodies(store, queue) == []
    assert await delete(store, queue, again) == [None]
    assert await lease_bodies(store, queue) == ["x4"]


async def test_a_later_message_that_stays_leased_leaves_those_before_it_deliverable(
    store: Store, clock: ManualClock
) -> None:
    """As recorded: with three in flight, the second is hidden for longer; the first comes, the third does not."""
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    _, x2, _ = await lease(store, queue, lease_ms=10_000)
    await hide(store, queue, x2, lease_ms=60_000)
    await clock.advance(ms=9_999)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue, lease_ms=10_000) == ["x1"]
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=49_999)
    assert await lease_bodies(store, queue, lease_ms=0) == ["x1"]
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["x1", "x2", "x3"]


async def test_a_group_gives_what_comes_before_its_first_hidden_message(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3", "x4", "x5"))
    x1, x2, _, x4, x5 = await lease(store, queue)
    await hide(store, queue, x1, x2, x4, x5, lease_ms=0)
    assert await lease_bodies(store, queue, 1) == ["x1"]
    assert await lease_bodies(store, queue) == []
    assert await counts(store, queue) == (3, 2, 0)


async def test_a_message_that_is_done_joins_what_is_before_and_behind_it(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, x2 = await lease(store, queue, 2)
    await hide(store, queue, x1, lease_ms=0)
    await delete(store, queue, x2)
    assert await lease_bodies(store, queue) == ["x1", "x3"]


async def test_receives_one_after_the_other_never_share_a_message(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, x2, x3 = await lease(store, queue)
    for message, before in ((x3, []), (x2, []), (x1, ["x1", "x2", "x3"])):
        await hide(store, queue, message, lease_ms=0)
        assert await lease_bodies(store, queue) == before
    assert await lease_bodies(store, queue) == []


async def test_a_released_group_comes_again_in_order(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, x2 = await lease(store, queue, 2)
    await release(store, queue, x2)
    assert await lease_bodies(store, queue) == []
    await release(store, queue, x1)
    assert await lease_bodies(store, queue) == ["x1", "x2", "x3"]


async def test_a_first_message_that_is_released_comes_again_alone(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, _ = await lease(store, queue, 2)
    await release(store, queue, x1)
    assert await lease_bodies(store, queue) == ["x1"]


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


async def test_a_delayed_message_holds_back_what_came_back_behind_it(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1"), draft("x2", group="x", delay_ms=5_000), *of("x", "x3"))
    [x1] = await lease(store, queue)
    await hide(store, queue, x1, lease_ms=0)
    assert await lease_bodies(store, queue, lease_ms=0) == ["x1"]
    await clock.advance(seconds=5)
    assert await lease_bodies(store, queue) == ["x1", "x2", "x3"]


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
    x1, _, _ = await lease(store, queue)
    await hide(store, queue, x1, lease_ms=0)
    store = await reopen()
    assert await counts(store, queue) == (1, 2, 0)
    assert await lease_bodies(store, queue) == ["x1"]


async def test_an_empty_receive_says_when_the_first_message_comes_back(store: Store, clock: ManualClock) -> None:
    """It may be told too early an instant, never one that is too late."""
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2"))
    x1, x2 = await lease(store, queue, lease_ms=30_000)
    await hide(store, queue, x1, lease_ms=10_000)
    await hide(store, queue, x2, lease_ms=60_000)
    looked = await store.lease(queue, count=1, lease_ms=1_000)
    assert looked.messages == []
    assert looked.next_in_ms is not None
    assert 0 < looked.next_in_ms <= 10_000


async def test_a_dead_letter_leaves_while_messages_behind_it_are_leased(store: Store, clock: ManualClock) -> None:
    dead = await make_queue(store, "dead.fifo")
    queue = await make_queue(store, "orders.fifo", redrive=dead_letters_to("dead.fifo", after=1))
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, x2 = await lease(store, queue, 2)
    await hide(store, queue, x1, lease_ms=0)
    assert await lease_bodies(store, queue) == []
    assert await counts(store, dead) == (1, 0, 0)
    assert await counts(store, queue) == (1, 1, 0)
    await delete(store, queue, x2)
    assert await lease_bodies(store, queue) == ["x3"]


async def test_no_message_becomes_a_dead_letter_before_those_in_front_of_it(store: Store) -> None:
    dead = await make_queue(store, "dead.fifo")
    queue = await make_queue(store, "orders.fifo", redrive=dead_letters_to("dead.fifo", after=1))
    await send(store, queue, *of("x", "x1", "x2", "x3"))
    x1, x2, x3 = await lease(store, queue)
    await hide(store, queue, x1, x3, lease_ms=0)
    assert await lease_bodies(store, queue) == []
    assert await lease_bodies(store, dead, lease_ms=0) == ["x1"]
    await hide(store, queue, x2, lease_ms=0)
    assert await lease_bodies(store, queue) == []
    assert await lease_bodies(store, dead) == ["x1", "x2", "x3"]


async def test_a_move_task_takes_what_comes_before_the_first_hidden_message(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store, "orders.fifo")
    await send(store, dead, *of("x", "x1", "x2", "x3"))
    x1, _, x3 = await lease(store, dead)
    await hide(store, dead, x1, x3, lease_ms=0)
    await store.start_move("task", dead, queue, None)
    await run_moves(store, clock)
    assert (await latest(store, dead)).status is MoveStatus.COMPLETED
    assert await lease_bodies(store, queue) == ["x1"]
    assert await counts(store, dead) == (1, 1, 0)


@with_limits(in_flight_fifo_max=3)
async def test_messages_in_flight_behind_a_visible_one_count_towards_the_limit(
    store: Store, clock: ManualClock
) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2", "x3"), *of("y", "y1", "y2"))
    x1, x2, x3 = await lease(store, queue, 3, lease_ms=10_000)
    await hide(store, queue, x2, x3, lease_ms=60_000)
    await hide(store, queue, x1, lease_ms=0)
    assert len(await lease(store, queue, lease_ms=10_000)) == 1
    assert await lease_bodies(store, queue) == []
    await clock.advance(seconds=10)
    assert len(await lease(store, queue, 5, lease_ms=10_000)) == 1
    await delete(store, queue, x3)
    assert len(await lease(store, queue, 5)) == 1


async def test_a_change_that_makes_the_first_message_visible_is_heard(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *of("x", "x1", "x2"))
    x1, _ = await lease(store, queue)
    heard: list[int] = []
    store.listen(lambda queue_id, _: heard.append(queue_id))
    await hide(store, queue, x1, lease_ms=0)
    await asyncio.sleep(0)
    assert queue.id in heard
