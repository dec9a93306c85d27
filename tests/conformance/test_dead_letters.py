"""Dead letters: a message that was received too often moves, in the transaction of the lease that meets it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.domain.message import Message
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    GROUP,
    bodies,
    change_queue,
    counts,
    dead_letters_to,
    delete,
    draft,
    hide,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    queue_name,
    release,
    send,
    with_limits,
)
from tests.support.stores import Reopen


def beside(name: str, other: str) -> str:
    """Name another queue of the same kind."""
    return name.replace("orders", other)


async def make_pair(store: Store, name: str, *, after: int = 1, **attributes: Any) -> tuple[Queue, Queue]:
    """Make a queue and its dead-letter queue."""
    dead = await make_queue(store, beside(name, "dead"), **attributes)
    return await make_queue(store, name, redrive=dead_letters_to(dead.name.name, after=after)), dead


async def let_lapse(store: Store, clock: ManualClock, queue: Queue, count: int = 10) -> list[Message]:
    """Lease, and wait until the lease is over."""
    leased = await lease(store, queue, count, lease_ms=1_000)
    await clock.advance(seconds=1)
    return leased


@on_both_kinds
@pytest.mark.parametrize("after", [1, 3])
async def test_a_message_is_delivered_so_often_and_then_moved(
    store: Store, clock: ManualClock, name: str, after: int
) -> None:
    queue, dead = await make_pair(store, name, after=after)
    await send(store, queue, "a")
    for count in range(1, after + 1):
        [message] = await let_lapse(store, clock, queue)
        assert message.receive_count == count
    assert await counts(store, dead) == (0, 0, 0)
    assert await lease_bodies(store, queue) == []
    assert await lease_bodies(store, dead) == ["a"]


@on_both_kinds
async def test_a_dead_letter_is_the_same_message_in_another_queue(store: Store, clock: ManualClock, name: str) -> None:
    queue, dead = await make_pair(store, name)
    [sent] = await send(store, queue, "a", group="tenant", sender="AIDAEXAMPLE", trace_header="Root=1")
    await let_lapse(store, clock, queue)
    await lease(store, queue)
    letter = await lease_one(store, dead)
    assert (letter.message_id, letter.body, letter.group) == (sent.message_id, "a", "tenant")
    assert (letter.sender, letter.trace_header) == ("AIDAEXAMPLE", "Root=1")
    assert letter.dead_letter_source == queue.name.arn


@on_both_kinds
async def test_receives_are_shown_across_queues_and_counted_in_each(
    store: Store, clock: ManualClock, reopen: Reopen, name: str
) -> None:
    """SQS tells how often a message was received in all queues; how many a policy grants is a matter of its queue."""
    queue, dead = await make_pair(store, name, after=3)
    last = await make_queue(store, beside(name, "last"))
    dead = await change_queue(store, dead, redrive=dead_letters_to(last.name.name, after=2))
    await send(store, queue, "a")
    seen: list[list[int]] = []
    for each in (queue, dead, last):
        seen.append([])
        while leased := await let_lapse(store, clock, each):
            seen[-1] += [message.receive_count for message in leased]
            if each is last:
                break
        store = await reopen()
    assert seen == [[1, 2, 3], [4, 5], [6]]
    [peeked] = (await store.peek(last, limit=10)).messages
    assert peeked.message.receive_count == 6


async def test_a_standard_dead_letter_keeps_its_sent_time(store: Store, clock: ManualClock) -> None:
    queue, dead = await make_pair(store, "orders")
    sent_at_ms = clock.now_ms()
    await send(store, queue, "a")
    await let_lapse(store, clock, queue)
    await lease(store, queue)
    assert (await lease_one(store, dead)).sent_at_ms == sent_at_ms


async def test_a_fifo_dead_letter_is_sent_anew_with_a_new_sequence(store: Store, clock: ManualClock) -> None:
    queue, dead = await make_pair(store, "orders.fifo")
    [before] = await send(store, dead, "before", group="g")
    await send(store, queue, "a", group="g")
    await let_lapse(store, clock, queue)
    moved_at_ms = clock.now_ms()
    await lease(store, queue)
    [after] = await send(store, dead, "after", group="g")
    first, letter, last = await lease(store, dead)
    assert bodies([first, letter, last]) == ["before", "a", "after"]
    assert letter.sent_at_ms == moved_at_ms
    assert before.sequence is not None
    assert letter.sequence is not None
    assert after.sequence is not None
    assert before.sequence < letter.sequence < after.sequence


async def test_a_fifo_group_moves_in_order(store: Store, clock: ManualClock) -> None:
    queue, dead = await make_pair(store, "orders.fifo")
    await send(store, queue, "a", "b", "c")
    await let_lapse(store, clock, queue)
    assert await lease_bodies(store, queue) == []
    assert await lease_bodies(store, dead) == ["a", "b", "c"]


@on_both_kinds
async def test_what_is_behind_a_dead_letter_is_delivered_by_the_same_lease(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue, dead = await make_pair(store, name)
    await send(store, queue, "a", "b", "c", "d")
    await let_lapse(store, clock, queue, 3)
    assert await lease_bodies(store, queue, 1) == ["d"]
    assert await counts(store, queue) == (0, 1, 0)
    assert await lease_bodies(store, dead) == ["a", "b", "c"]


@on_both_kinds
async def test_a_dead_letter_arrives_visible_whatever_the_delay_of_its_new_queue(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue, dead = await make_pair(store, name, delay_s=900)
    await send(store, queue, "a")
    await let_lapse(store, clock, queue)
    await lease(store, queue)
    assert await lease_bodies(store, dead) == ["a"]


@on_both_kinds
async def test_old_receipts_do_not_act_on_a_dead_letter(store: Store, clock: ManualClock, name: str) -> None:
    queue, dead = await make_pair(store, name)
    await send(store, queue, "a")
    old = await let_lapse(store, clock, queue)
    await lease(store, queue)
    await delete(store, queue, *old)
    await hide(store, queue, *old, lease_ms=60_000)
    await release(store, queue, *old)
    assert await counts(store, queue) == (0, 0, 0)
    assert await counts(store, dead) == (1, 0, 0)
    letter = await lease_one(store, dead)
    assert letter.receipt > old[0].receipt
    assert await delete(store, dead, letter) == [None]
    assert await counts(store, dead) == (0, 0, 0)


@on_both_kinds
async def test_a_message_is_delivered_while_its_dead_letter_queue_does_not_exist(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name, redrive=dead_letters_to(beside(name, "dead"), after=1))
    await send(store, queue, "a")
    await let_lapse(store, clock, queue)
    [again] = await let_lapse(store, clock, queue)
    assert again.receive_count == 2
    dead = await make_queue(store, beside(name, "dead"))
    assert await lease_bodies(store, queue) == []
    assert await lease_bodies(store, dead) == ["a"]


@on_both_kinds
async def test_a_message_is_delivered_after_its_dead_letter_queue_was_deleted(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue, dead = await make_pair(store, name)
    await send(store, queue, "a")
    await let_lapse(store, clock, queue)
    await store.delete_queue(dead)
    assert await lease_bodies(store, queue) == ["a"]


@on_both_kinds
async def test_the_policy_is_that_of_the_value_passed_in(store: Store, clock: ManualClock, name: str) -> None:
    queue, dead = await make_pair(store, name)
    await send(store, queue, "a")
    await let_lapse(store, clock, queue)
    without = await change_queue(store, queue, redrive=None)
    [again] = await let_lapse(store, clock, without)
    assert again.receive_count == 2
    assert await lease_bodies(store, queue) == []
    assert await lease_bodies(store, dead) == ["a"]


@on_both_kinds
async def test_a_dead_letter_can_die_again_and_names_its_last_queue(
    store: Store, clock: ManualClock, name: str
) -> None:
    last = await make_queue(store, beside(name, "last"))
    dead = await make_queue(store, beside(name, "dead"), redrive=dead_letters_to(last.name.name, after=2))
    queue = await make_queue(store, name, redrive=dead_letters_to(dead.name.name, after=1))
    await send(store, queue, "a")
    await let_lapse(store, clock, queue)
    await lease(store, queue)
    for _ in range(2):
        assert bodies(await let_lapse(store, clock, dead)) == ["a"]
    assert await lease_bodies(store, dead) == []
    assert (await lease_one(store, last)).dead_letter_source == dead.name.arn


async def test_a_dead_letter_is_no_duplicate(store: Store, clock: ManualClock) -> None:
    queue, dead = await make_pair(store, "orders.fifo")
    await send(store, dead, "sent here", deduplication_id="1")
    await send(store, queue, "died", deduplication_id="1")
    await let_lapse(store, clock, queue)
    await lease(store, queue)
    assert await lease_bodies(store, dead) == ["sent here", "died"]


async def test_the_move_and_the_lease_are_one_transaction(store: Store, clock: ManualClock, reopen: Reopen) -> None:
    queue, dead = await make_pair(store, "orders")
    await send(store, queue, "dead")
    await let_lapse(store, clock, queue)
    await send(store, queue, "live")
    assert await lease_bodies(store, queue) == ["live"]
    store = await reopen()
    assert await counts(store, queue) == (0, 1, 0)
    assert await counts(store, dead) == (1, 0, 0)
    letter = await lease_one(store, dead)
    assert (letter.body, letter.dead_letter_source) == ("dead", queue.name.arn)


@on_both_kinds
async def test_leases_at_the_same_time_move_a_message_once(store: Store, clock: ManualClock, name: str) -> None:
    queue, dead = await make_pair(store, name)
    await send(store, queue, *(draft(str(number), group=str(number)) for number in range(10)))
    await let_lapse(store, clock, queue)
    assert await asyncio.gather(*(lease(store, queue) for _ in range(5))) == [[]] * 5
    assert await counts(store, dead) == (10, 0, 0)


async def test_a_tenant_keeps_its_share_in_the_dead_letter_queue(store: Store, clock: ManualClock) -> None:
    queue, dead = await make_pair(store, "orders")
    await send(store, dead, "a1", "a2", group="a")
    await send(store, queue, "b1", group="b")
    await let_lapse(store, clock, queue)
    await lease(store, queue)
    first = await lease_one(store, dead)
    second = await lease_one(store, dead)
    assert {first.group, second.group} == {"a", "b"}


@with_limits(in_flight_standard_max=1, in_flight_fifo_max=1)
@on_both_kinds
async def test_dead_letters_are_not_in_flight_where_they_died(store: Store, clock: ManualClock, name: str) -> None:
    queue, _ = await make_pair(store, name)
    await send(store, queue, "a", group=GROUP)
    await let_lapse(store, clock, queue)
    await send(store, queue, "b", group=GROUP)
    assert await lease_bodies(store, queue) == ["b"]


async def test_a_deleted_dead_letter_queue_made_again_takes_dead_letters(store: Store, clock: ManualClock) -> None:
    queue, dead = await make_pair(store, "orders")
    await store.delete_queue(dead)
    await clock.advance(seconds=60)
    again = await make_queue(store, "dead")
    await send(store, queue, "a")
    await let_lapse(store, clock, queue)
    assert await lease_bodies(store, queue) == []
    assert await lease_bodies(store, await store.find_queue(queue_name("dead"))) == ["a"]
    assert await counts(store, again) == (0, 1, 0)


# -- a queue that is its own dead-letter queue ----------------------------------------------------


async def make_own(store: Store, name: str, *, after: int) -> Queue:
    """Make a queue whose dead letters stay in it."""
    return await make_queue(store, name, redrive=dead_letters_to(name, after=after))


@on_both_kinds
@pytest.mark.parametrize("after", [1, 2])
async def test_a_dead_letter_of_its_own_queue_comes_back_as_the_same_message(
    store: Store, clock: ManualClock, reopen: Reopen, name: str, after: int
) -> None:
    """In the receive that finds it, which counts it as received in that queue for the first time."""
    queue = await make_own(store, name, after=after)
    [sent] = await send(store, queue, "a", group="tenant", trace_header="Root=1")
    seen = []
    for _ in range(3 * after):
        [message] = await let_lapse(store, clock, queue)
        assert (message.message_id, message.body, message.group) == (sent.message_id, "a", "tenant")
        assert message.trace_header == "Root=1"
        seen.append((message.receive_count, message.dead_letter_source is not None))
    assert seen == [(count, count > after) for count in range(1, 3 * after + 1)]
    store = await reopen()
    assert await counts(store, queue) == (1, 0, 0)
    [message] = await lease(store, queue)
    assert message.dead_letter_source == queue.name.arn
    assert await delete(store, queue, message) == [None]
    assert await counts(store, queue) == (0, 0, 0)


async def test_a_late_release_does_not_count_against_a_dead_letter_that_began_anew(
    store: Store, clock: ManualClock
) -> None:
    """The receive that takes one message also looks at the other, which is a dead letter too."""
    queue = await make_own(store, "orders", after=1)
    await send(store, queue, "grouped", group="tenant")
    await send(store, queue, "plain")
    dead = await let_lapse(store, clock, queue)
    assert await lease_bodies(store, queue, 1) == ["grouped"]
    await release(store, queue, *(message for message in dead if message.body == "plain"))
    [plain] = await lease(store, queue)
    assert (plain.body, plain.receive_count) == ("plain", 2)


@on_both_kinds
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("count", [1, 3, 10])
async def test_no_message_of_such_a_queue_is_lost_or_doubled(
    store: Store, clock: ManualClock, name: str, groups: int, count: int
) -> None:
    queue = await make_own(store, name, after=1)
    sent = [(await send(store, queue, str(number), group=f"g{number % groups}"))[0].message_id for number in range(9)]
    leases: dict[str, int] = dict.fromkeys(sent, 0)
    for _ in range(40):
        leased = await lease(store, queue, count, lease_ms=1_000)
        ids = [message.message_id for message in leased]
        assert leased
        assert len(set(ids)) == len(ids)
        for message in leased:
            leases[message.message_id] += 1
            assert message.receive_count == leases[message.message_id]
        assert await counts(store, queue) == (9 - len(ids), len(ids), 0)
        await clock.advance(seconds=1)
    done = []
    while leased := await lease(store, queue, count):
        assert await delete(store, queue, *leased) == [None] * len(leased)
        done += [message.message_id for message in leased]
    assert sorted(done) == sorted(sent)
    assert await counts(store, queue) == (0, 0, 0)


async def test_messages_without_a_group_stay_in_such_a_queue_too(store: Store, clock: ManualClock) -> None:
    queue = await make_own(store, "orders", after=1)
    await send(store, queue, *map(str, range(20)))
    for _ in range(5):
        assert len(await let_lapse(store, clock, queue)) == 10
        assert sum(await counts(store, queue)) == 20
    received = []
    while leased := await lease(store, queue):
        received += bodies(leased)
    assert sorted(received, key=int) == [str(number) for number in range(20)]


async def test_dead_letters_of_a_group_go_to_its_end_in_a_fifo_queue_of_their_own(
    store: Store, clock: ManualClock
) -> None:
    queue = await make_own(store, "orders.fifo", after=1)
    await send(store, queue, "a", "b", "c")
    assert bodies(await let_lapse(store, clock, queue, 1)) == ["a"]
    leased = await lease(store, queue)
    assert bodies(leased) == ["b", "c", "a"]
    sequences = [message.sequence or 0 for message in leased]
    assert sequences == sorted(sequences)
    assert leased[-1].sent_at_ms == clock.now_ms()


async def test_a_lease_of_no_length_ends_on_such_a_queue(store: Store) -> None:
    """Whatever it gives is visible again, and too often received, at once."""
    for name in ("orders", "orders.fifo"):
        queue = await make_own(store, name, after=1)
        await send(store, queue, "a")
        received = [message.receive_count for _ in range(5) for message in await lease(store, queue, lease_ms=0)]
        assert received == [1, 2, 3, 4, 5]
