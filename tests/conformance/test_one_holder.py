"""One holder at a time: a request that died gives nothing back that a retry of it holds by now."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.queue import Queue
from penstock.store.port import Leased, Store
from penstock.testing import ManualClock
from tests.support.queues import (
    attempt_key,
    counts,
    delete,
    hide,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    receipt_of,
    release,
    send,
)
from tests.support.stores import Home, Reopen, on_postgres

KEY = attempt_key("receive")
HELD = (0, 1, 0)
GIVEN_BACK = (1, 0, 0)


async def receive(store: Store, queue: Queue, *, retry: int) -> Leased:
    leased = await store.lease(queue, count=10, lease_ms=600_000, attempt=KEY, retry=retry)
    assert len(leased.messages) == 1
    return leased


async def give_back(store: Store, queue: Queue, leased: Leased) -> None:
    receipts = [receipt_of(queue, message) for message in leased.messages]
    await store.release(queue, receipts, holder=leased.holder)


@pytest.fixture
async def queue(store: Store, name: str) -> Queue:
    """A queue with one message."""
    made = await make_queue(store, name)
    await send(store, made, "a")
    return made


@on_both_kinds
async def test_a_request_that_was_retried_gives_nothing_back(store: Store, queue: Queue) -> None:
    dead = await receive(store, queue, retry=0)
    held = await receive(store, queue, retry=1)
    assert held.messages == dead.messages
    await give_back(store, queue, dead)
    assert await counts(store, queue) == HELD
    assert await lease_bodies(store, queue) == []
    assert await delete(store, queue, *held.messages) == [None]
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
async def test_the_last_retry_gives_back_what_it_holds(store: Store, queue: Queue) -> None:
    await receive(store, queue, retry=0)
    second = await receive(store, queue, retry=1)
    third = await receive(store, queue, retry=2)
    await give_back(store, queue, second)
    assert await counts(store, queue) == HELD
    await give_back(store, queue, third)
    assert await counts(store, queue) == GIVEN_BACK
    assert (await lease_one(store, queue)).receive_count == 1


@on_both_kinds
async def test_a_retry_that_leases_first_gives_back_what_it_holds(store: Store, queue: Queue) -> None:
    await give_back(store, queue, await receive(store, queue, retry=3))
    assert await counts(store, queue) == GIVEN_BACK


@on_both_kinds
async def test_an_earlier_try_that_comes_late_gives_nothing_back(store: Store, queue: Queue) -> None:
    held = await receive(store, queue, retry=1)
    dead = await receive(store, queue, retry=0)
    await give_back(store, queue, dead)
    assert await counts(store, queue) == HELD
    assert await delete(store, queue, *held.messages) == [None]


@on_both_kinds
async def test_an_earlier_try_between_two_others_gives_nothing_back(store: Store, queue: Queue) -> None:
    await receive(store, queue, retry=0)
    held = await receive(store, queue, retry=2)
    dead = await receive(store, queue, retry=1)
    await give_back(store, queue, dead)
    assert await counts(store, queue) == HELD
    assert await delete(store, queue, *held.messages) == [None]


@on_both_kinds
async def test_an_earlier_retry_after_a_later_one_leased_gives_nothing_back(store: Store, queue: Queue) -> None:
    held = await receive(store, queue, retry=2)
    dead = await receive(store, queue, retry=1)
    await give_back(store, queue, dead)
    assert await counts(store, queue) == HELD
    assert await delete(store, queue, *held.messages) == [None]


async def test_each_of_several_requests_at_once_holds_its_own(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", "b", "c")
    keys = [attempt_key(text) for text in "abc"]
    given = await asyncio.gather(
        *(store.lease(queue, count=1, lease_ms=600_000, attempt=key, retry=2 * n) for n, key in enumerate(keys))
    )
    for key in keys:
        dead = await store.lease(queue, count=1, lease_ms=600_000, attempt=key, retry=1)
        await give_back(store, queue, dead)
    # Only the first was leased by an earlier request than its retry.
    assert await counts(store, queue) == (1, 2, 0)
    assert await delete(store, queue, *(leased.messages[0] for leased in given)) == [None] * 3


@on_both_kinds
async def test_a_dead_request_gives_nothing_back_that_a_consumer_has_hidden_since(store: Store, queue: Queue) -> None:
    dead = await receive(store, queue, retry=0)
    assert await hide(store, queue, *dead.messages, lease_ms=60_000) == [None]
    await give_back(store, queue, dead)
    assert await counts(store, queue) == HELD
    assert await delete(store, queue, *dead.messages) == [None]


async def test_a_dead_request_gives_nothing_back_that_an_older_receipt_has_hidden_since(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    older = await lease_one(store, queue, lease_ms=0)
    dead = await receive(store, queue, retry=0)
    assert await hide(store, queue, older, lease_ms=60_000) == [None]
    await give_back(store, queue, dead)
    assert await counts(store, queue) == HELD
    assert await lease_bodies(store, queue) == []


@on_both_kinds
async def test_of_requests_without_an_order_neither_gives_back(store: Store, queue: Queue) -> None:
    first = await receive(store, queue, retry=0)
    second = await receive(store, queue, retry=0)
    await give_back(store, queue, first)
    await give_back(store, queue, second)
    assert await counts(store, queue) == HELD


@on_both_kinds
async def test_what_nobody_could_give_back_has_a_holder_again_after_the_next_lease(
    store: Store, clock: ManualClock, queue: Queue
) -> None:
    for _ in range(2):
        await receive(store, queue, retry=0)
    await clock.advance(seconds=600)
    await release(store, queue, await lease_one(store, queue))
    assert await counts(store, queue) == GIVEN_BACK


@on_both_kinds
async def test_a_give_back_that_comes_before_the_retry_leaves_it_a_new_lease(store: Store, queue: Queue) -> None:
    dead = await receive(store, queue, retry=0)
    await give_back(store, queue, dead)
    held = await receive(store, queue, retry=1)
    assert held.messages[0].receipt > dead.messages[0].receipt
    await give_back(store, queue, dead)
    assert await counts(store, queue) == HELD


@on_both_kinds
async def test_a_retry_holds_its_messages_after_a_restart(store: Store, reopen: Reopen, queue: Queue) -> None:
    dead = await receive(store, queue, retry=0)
    await receive(store, queue, retry=1)
    store = await reopen()
    await give_back(store, queue, dead)
    assert await counts(store, queue) == HELD


@on_both_kinds
@pytest.mark.parametrize("place", ["lease.begun", "lease.committed"])
@pytest.mark.parametrize("retry", [0, 1])
async def test_a_cancelled_lease_gives_nothing_back_that_its_retry_holds(
    store: Store, failpoints: Failpoints, queue: Queue, place: str, retry: int
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        reached.set()
        await go_on.wait()

    failpoints.arm(place, pause)
    dying = asyncio.create_task(receive(store, queue, retry=0))
    await reached.wait()
    retried = asyncio.create_task(receive(store, queue, retry=retry))
    dying.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await dying
    held = await retried
    # A lease of our own goes after whatever the store still does for the one that was cancelled.
    assert await lease(store, queue) == []
    assert await counts(store, queue) == HELD
    assert await delete(store, queue, *held.messages) == [None]


@on_both_kinds
async def test_give_backs_and_retries_at_the_same_time_leave_one_holder(store: Store, queue: Queue) -> None:
    leased = await receive(store, queue, retry=0)
    for retry in range(1, 20):
        dead = leased
        _, leased = await asyncio.gather(give_back(store, queue, dead), receive(store, queue, retry=retry))
        assert await lease(store, queue) == []
    assert await delete(store, queue, *leased.messages) == [None]


@on_both_kinds
@on_postgres
async def test_a_request_at_one_node_gives_nothing_back_that_its_retry_at_another_holds(
    store: Store, home: Home, queue: Queue
) -> None:
    other = await home.open()
    dead = await receive(store, queue, retry=0)
    held = await receive(other, queue, retry=1)
    await give_back(store, queue, dead)
    assert await counts(other, queue) == HELD
    assert await delete(store, queue, *held.messages) == [None]


@on_both_kinds
@on_postgres
async def test_a_slow_node_gives_nothing_back_that_the_retry_at_another_holds(
    store: Store, home: Home, queue: Queue
) -> None:
    slow = await home.open()
    held = await receive(store, queue, retry=1)
    await give_back(slow, queue, await receive(slow, queue, retry=0))
    assert await counts(store, queue) == HELD
    assert await delete(store, queue, *held.messages) == [None]
