"""FIFO queues: a deduplication id is stored once within its window."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.limits import Limits
from penstock.domain.message import Refused
from penstock.domain.queue import DeduplicationScope
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import counts, delete, draft, lease, lease_bodies, make_queue, send
from tests.support.stores import Reopen


async def test_a_duplicate_is_not_stored_and_answers_as_the_first(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    first = await send(store, queue, "a", deduplication_id="1")
    assert await send(store, queue, "other body", deduplication_id="1") == first
    assert await lease_bodies(store, queue) == ["a"]


async def test_two_duplicates_in_one_call_are_one(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    one, same = draft("one", group="g", deduplication_id="1"), draft("same", group="g", deduplication_id="1")
    first, between, second = await send(store, queue, one, draft("two", group="g", deduplication_id="2"), same)
    assert first == second != between
    assert first.message_id == one.message_id
    assert await lease_bodies(store, queue) == ["one", "two"]


async def test_other_ids_and_no_ids_are_no_duplicates(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", deduplication_id="1")
    await send(store, queue, "a", deduplication_id="2")
    await send(store, queue, "a")
    await send(store, queue, "a")
    assert await lease_bodies(store, queue) == ["a", "a", "a", "a"]


async def test_the_window_is_counted_from_the_first_send(store: Store, clock: ManualClock, limits: Limits) -> None:
    queue = await make_queue(store, "orders.fifo")
    first = await send(store, queue, "a", deduplication_id="1")
    await clock.advance(ms=limits.deduplication_window_ms - 1)
    assert await send(store, queue, "b", deduplication_id="1") == first
    await clock.advance(ms=1)
    assert await send(store, queue, "c", deduplication_id="1") != first
    assert await lease_bodies(store, queue) == ["a", "c"]


async def test_an_id_stored_again_has_a_window_of_its_own(store: Store, clock: ManualClock, limits: Limits) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", deduplication_id="1")
    await clock.advance(ms=limits.deduplication_window_ms)
    second = await send(store, queue, "b", deduplication_id="1")
    await clock.advance(ms=limits.deduplication_window_ms - 1)
    await store.sweep()
    assert await send(store, queue, "c", deduplication_id="1") == second


async def test_a_deleted_message_is_still_a_duplicates_first(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    first = await send(store, queue, "a", deduplication_id="1")
    await delete(store, queue, *await lease(store, queue))
    assert await send(store, queue, "a", deduplication_id="1") == first
    assert await counts(store, queue) == (0, 0, 0)


async def test_a_duplicate_does_not_disturb_a_leased_first(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", deduplication_id="1")
    leased = await lease(store, queue)
    await send(store, queue, "a", deduplication_id="1")
    assert await counts(store, queue) == (0, 1, 0)
    assert await delete(store, queue, *leased) == [None]


@pytest.mark.parametrize(
    ("scope", "stored"),
    [(DeduplicationScope.QUEUE, ["a"]), (DeduplicationScope.MESSAGE_GROUP, ["a", "b"])],
)
async def test_the_scope_says_whether_groups_share_ids(
    store: Store, scope: DeduplicationScope, stored: list[str]
) -> None:
    queue = await make_queue(store, "orders.fifo", deduplication_scope=scope)
    await send(store, queue, "a", group="x", deduplication_id="1")
    await send(store, queue, "b", group="y", deduplication_id="1")
    await send(store, queue, "c", group="x", deduplication_id="1")
    await send(store, queue, "d", group="y", deduplication_id="1")
    assert sorted(await lease_bodies(store, queue)) == stored


async def test_a_group_and_an_id_that_run_together_are_told_apart(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo", deduplication_scope=DeduplicationScope.MESSAGE_GROUP)
    await send(store, queue, "a", group="x:1", deduplication_id="2")
    await send(store, queue, "b", group="x", deduplication_id="1:2")
    assert sorted(await lease_bodies(store, queue)) == ["a", "b"]


async def test_queues_do_not_share_ids(store: Store) -> None:
    for name in ("orders.fifo", "invoices.fifo"):
        queue = await make_queue(store, name)
        await send(store, queue, "a", deduplication_id="1")
        assert await lease_bodies(store, queue) == ["a"]


async def test_a_queue_made_again_does_not_know_the_ids_of_the_one_before(
    store: Store, clock: ManualClock, limits: Limits
) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", deduplication_id="1")
    await store.delete_queue(queue)
    await clock.advance(ms=limits.name_reuse_ms)
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "b", deduplication_id="1")
    assert await lease_bodies(store, queue) == ["b"]


async def test_duplicates_at_the_same_time_are_one(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    answers = await asyncio.gather(*(send(store, queue, str(n), deduplication_id="1") for n in range(20)))
    assert answers == [answers[0]] * 20
    assert await counts(store, queue) == (1, 0, 0)


async def test_windows_survive_a_restart(store: Store, reopen: Reopen) -> None:
    queue = await make_queue(store, "orders.fifo")
    first = await send(store, queue, "a", deduplication_id="1")
    store = await reopen()
    assert await send(store, queue, "b", deduplication_id="1") == first
    assert await lease_bodies(store, queue) == ["a"]


async def test_what_is_refused_opens_no_window(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await store.append(queue, [Refused("MessageTooLong", "too long"), draft("b", group="g", deduplication_id="2")])
    await send(store, queue, "a", deduplication_id="1")
    assert await lease_bodies(store, queue) == ["b", "a"]
