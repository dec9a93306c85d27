"""No lost receive: one whose answer was lost is tried again, and has the same messages again, received once.

As in test_no_double_send.py, every interleaving has a twin in which the outcome is forgotten and the scene must fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.interleaving import Interleaving, Scene, lose_the_answer, with_each
from tests.support.queues import (
    attempt_key,
    change_queue,
    counts,
    delete,
    lease,
    make_queue,
    on_both_kinds,
    send,
    with_limits,
)
from tests.support.stores import on_postgres

KEY = attempt_key("receive")


@asynccontextmanager
async def other_receive(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    assert await lease(store, queue) == []
    yield
    assert await lease(store, queue) == []


@asynccontextmanager
async def other_send(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    await send(store, queue, "later")
    yield
    assert await counts(store, queue) == ((1, 0, 0))


@asynccontextmanager
async def no_time(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    yield
    assert await counts(store, queue) == (0, 0, 0)


@asynccontextmanager
async def most_of_the_lease(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    await clock.advance(ms=29_000)
    yield


@asynccontextmanager
async def other_attributes(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    await change_queue(store, queue, visibility_timeout_s=0, delay_s=900)
    yield


INTERLEAVINGS: list[Interleaving] = [no_time, other_receive, other_send, most_of_the_lease, other_attributes]
each_interleaving = with_each(INTERLEAVINGS)


async def receive_twice(scene: Scene, name: str, interleaving: Interleaving, *, pause_ms: int = 0) -> None:
    """Receive, lose the answer, do something else, and receive again with the same key."""
    store = scene.store
    queue = await make_queue(store, name)
    sent = await send(store, queue, "a", "b")
    lose_the_answer(scene.failpoints, "lease.committed")
    with pytest.raises(StoreUnavailable):
        await lease(store, queue, attempt=KEY)
    async with interleaving(store, queue, scene.clock):
        await scene.clock.advance(ms=pause_ms)
        again = await lease(store, queue, attempt=KEY)
        assert [message.message_id for message in again] == [answer.message_id for answer in sent]
        assert [message.receive_count for message in again] == [1, 1]
        assert await delete(store, queue, *again) == [None, None]


@on_both_kinds
@each_interleaving
async def test_a_retried_receive_has_the_same_messages(scene: Scene, name: str, interleaving: Interleaving) -> None:
    await receive_twice(scene, name, interleaving)


@on_both_kinds
@each_interleaving
@with_limits(outcome_window_ms=1)
async def test_it_is_noticed_when_the_outcome_of_a_receive_is_forgotten(
    scene: Scene, name: str, interleaving: Interleaving
) -> None:
    with pytest.raises(AssertionError):
        await receive_twice(scene, name, interleaving, pause_ms=1)


@on_both_kinds
async def test_a_retried_receive_of_a_purged_queue_has_nothing(store: Store, failpoints: Failpoints, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    lose_the_answer(failpoints, "lease.committed")
    with pytest.raises(StoreUnavailable):
        await lease(store, queue, attempt=KEY)
    await store.purge_queue(queue)
    assert await lease(store, queue, attempt=KEY) == []


@on_postgres
@on_both_kinds
@pytest.mark.parametrize("attempt", [KEY, None], ids=["key", "no-key"])
async def test_a_connection_lost_by_a_receive_costs_no_delivery(
    store: Store, failpoints: Failpoints, name: str, attempt: bytes | None
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", "c")
    lose_the_answer(failpoints, "lease.committed", OSError)
    leased = await lease(store, queue, 2, attempt=attempt)
    assert [(message.body, message.receive_count) for message in leased] == [("a", 1), ("b", 1)]
    assert await counts(store, queue) == (1, 2, 0)
    assert await delete(store, queue, *leased) == [None, None]
