"""Attempt keys of leases: a receive that is tried again has the same messages again, while their lease lasts."""

from __future__ import annotations

import asyncio

from penstock.domain.limits import Limits
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    attempt_key,
    bodies,
    counts,
    delete,
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

KEY = attempt_key("receive")
OTHER = attempt_key("another")


@on_both_kinds
async def test_a_repeated_lease_gives_the_same_deliveries(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", "c")
    first = await lease(store, queue, 2, attempt=KEY)
    await clock.advance(seconds=10)
    assert await lease(store, queue, 2, attempt=KEY) == first
    assert bodies(first) == ["a", "b"]


async def test_leases_with_other_keys_or_none_are_leases_of_their_own(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", "b", "c", "d")
    assert bodies(await lease(store, queue, 1, attempt=KEY)) == ["a"]
    assert bodies(await lease(store, queue, 1, attempt=OTHER)) == ["b"]
    assert bodies(await lease(store, queue, 1)) == ["c"]
    assert bodies(await lease(store, queue, 1)) == ["d"]


@on_both_kinds
async def test_a_repeated_lease_is_renewed_from_now(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    await lease(store, queue, lease_ms=30_000, attempt=KEY)
    await clock.advance(seconds=20)
    await lease(store, queue, lease_ms=30_000, attempt=KEY)
    await clock.advance(ms=29_999)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


@on_both_kinds
async def test_a_repeated_lease_never_shortens(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [message] = await lease(store, queue, lease_ms=30_000, attempt=KEY)
    await hide(store, queue, message, lease_ms=200_000)
    assert await lease(store, queue, lease_ms=30_000, attempt=KEY) == [message]
    await clock.advance(ms=199_999)
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_a_repeated_lease_leaves_out_what_was_deleted(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    first, second = await lease(store, queue, attempt=KEY)
    assert await delete(store, queue, first) == [None]
    assert await lease(store, queue, attempt=KEY) == [second]


@on_both_kinds
async def test_a_repeated_lease_leaves_out_what_was_leased_again_by_another(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", group="1")
    await send(store, queue, "b", group="2")
    first, second = await lease(store, queue, attempt=KEY)
    await hide(store, queue, first, lease_ms=0)
    assert await lease_bodies(store, queue) == ["a"]
    assert await lease(store, queue, attempt=KEY) == [second]


async def test_a_repeated_fifo_lease_gives_nothing_behind_a_message_that_came_back(store: Store) -> None:
    """The message that came back is to be delivered first, and so it is a new lease."""
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", "b", "c")
    first, _, _ = await lease(store, queue, attempt=KEY)
    await hide(store, queue, first, lease_ms=0)
    [again] = await lease(store, queue, attempt=KEY)
    assert (again.body, again.receive_count) == ("a", 2)
    assert await lease(store, queue, attempt=KEY) == [again]


async def test_a_repeated_fifo_lease_gives_what_is_before_a_message_that_came_back(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", "b", "c")
    first = await lease(store, queue, attempt=KEY)
    await hide(store, queue, first[1], lease_ms=0)
    assert await lease(store, queue, attempt=KEY) == first[:1]
    assert await counts(store, queue) == (1, 2, 0)


async def test_a_repeated_fifo_lease_judges_each_group_by_itself(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a1", "a2", group="a")
    await send(store, queue, "b1", "b2", group="b")
    by_body = {message.body: message for message in await lease(store, queue, attempt=KEY)}
    await hide(store, queue, by_body["a1"], lease_ms=0)
    assert await lease(store, queue, attempt=KEY) == [by_body["b1"], by_body["b2"]]


@on_both_kinds
async def test_a_repeat_after_everything_was_deleted_is_a_new_lease(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    [first] = await lease(store, queue, 1, attempt=KEY)
    await delete(store, queue, first)
    assert bodies(await lease(store, queue, 1, attempt=KEY)) == ["b"]


@on_both_kinds
async def test_a_repeat_after_the_lease_is_over_is_a_new_lease(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [first] = await lease(store, queue, lease_ms=30_000, attempt=KEY)
    await clock.advance(ms=30_000)
    [again] = await lease(store, queue, lease_ms=30_000, attempt=KEY)
    assert again.receipt > first.receipt
    assert again.receive_count == 2
    assert await lease(store, queue, lease_ms=30_000, attempt=KEY) == [again]


@on_both_kinds
async def test_a_repeat_after_a_release_is_a_new_lease(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [first] = await lease(store, queue, attempt=KEY)
    await release(store, queue, first)
    [again] = await lease(store, queue, attempt=KEY)
    assert again.receipt > first.receipt
    assert again.receive_count == 1


@on_both_kinds
async def test_a_lease_is_repeated_to_the_end_of_its_window(
    store: Store, clock: ManualClock, limits: Limits, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", group="1")
    await send(store, queue, "b", group="2")
    first = await lease(store, queue, 1, lease_ms=3_600_000, attempt=KEY)
    await clock.advance(ms=limits.outcome_window_ms - 1)
    assert await lease(store, queue, 1, lease_ms=3_600_000, attempt=KEY) == first
    await clock.advance(ms=1)
    assert bodies(await lease(store, queue, 1, lease_ms=3_600_000, attempt=KEY)) == ["b"]


@on_both_kinds
async def test_a_key_used_once_more_after_its_window_has_a_window_again(
    store: Store, clock: ManualClock, limits: Limits, name: str
) -> None:
    queue = await make_queue(store, name)
    for number in range(3):
        await send(store, queue, str(number), group=str(number))
    await lease(store, queue, 1, lease_ms=3_600_000, attempt=KEY)
    await clock.advance(ms=limits.outcome_window_ms)
    once_more, _ = await asyncio.gather(lease(store, queue, 1, attempt=KEY), lease(store, queue, 1))
    assert await lease(store, queue, 1, attempt=KEY) == once_more


@on_both_kinds
async def test_a_lease_that_gave_nothing_is_not_repeated(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    assert await lease(store, queue, attempt=KEY) == []
    await send(store, queue, "a")
    assert bodies(await lease(store, queue, attempt=KEY)) == ["a"]


@on_both_kinds
async def test_leases_with_one_key_at_the_same_time_are_one(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    for number in range(10):
        await send(store, queue, str(number), group=str(number))
    answers = await asyncio.gather(*(lease(store, queue, 1, attempt=KEY) for _ in range(5)))
    assert answers == [answers[0]] * 5
    assert await counts(store, queue) == (9, 1, 0)


@on_both_kinds
async def test_leases_with_one_key_at_the_same_time_find_what_a_lease_of_no_time_left(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    given = await asyncio.gather(*(lease(store, queue, 1, lease_ms=ms, attempt=KEY) for ms in (0, 1_000, 1_000)))
    assert [bodies(messages) for messages in given] == [["a"], ["a"], ["a"]]
    assert [messages[0].receipt for messages in given] == [1, 2, 2]


@on_both_kinds
@with_limits(in_flight_standard_max=1, in_flight_fifo_max=1)
async def test_a_repeated_lease_is_given_at_the_in_flight_limit(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    first = await lease(store, queue, attempt=KEY)
    assert await lease(store, queue, attempt=KEY) == first
    assert bodies(first) == ["a"]


@on_both_kinds
async def test_an_expired_message_is_not_given_again(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "a")
    await lease(store, queue, lease_ms=120_000, attempt=KEY)
    await clock.advance(seconds=60)
    assert await lease(store, queue, lease_ms=120_000, attempt=KEY) == []


@on_both_kinds
async def test_a_purged_message_is_not_given_again(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    await lease(store, queue, attempt=KEY)
    await store.purge_queue(queue)
    assert await lease(store, queue, attempt=KEY) == []


@on_both_kinds
async def test_a_lease_is_repeated_after_a_restart(store: Store, reopen: Reopen, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", "c")
    first = await lease(store, queue, 2, attempt=KEY)
    store = await reopen()
    assert await lease(store, queue, 2, attempt=KEY) == first


@with_limits(name_reuse_ms=0)
@on_both_kinds
async def test_the_key_of_a_queue_that_is_gone_names_nothing_in_the_next_one(store: Store, name: str) -> None:
    gone = await make_queue(store, name)
    await send(store, gone, "old")
    await lease(store, gone, attempt=KEY)
    await store.delete_queue(gone)
    while await store.sweep():
        pass
    queue = await make_queue(store, name)
    await send(store, queue, "new")
    assert bodies(await lease(store, queue, attempt=OTHER)) == ["new"]
    assert await lease(store, queue, attempt=KEY) == []
