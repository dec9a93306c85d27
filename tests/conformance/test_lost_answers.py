"""Answers lost after the commit, verb by verb: PostgreSQL resolves a lost connection, other errors go to the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from penstock.domain.errors import QueueDoesNotExist, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.message import Message
from penstock.domain.queue import Queue
from penstock.store.port import Store
from tests.support.interleaving import lose_the_answer
from tests.support.queues import (
    change_queue,
    counts,
    delete,
    hide,
    lease,
    make_queue,
    on_both_kinds,
    release,
    send,
)
from tests.support.stores import on_postgres


async def delete_one(store: Store, queue: Queue, message: Message) -> None:
    assert await delete(store, queue, message) == [None]
    assert await counts(store, queue) == (0, 0, 0)


async def hide_one(store: Store, queue: Queue, message: Message) -> None:
    assert await hide(store, queue, message, lease_ms=0) == [None]
    assert await counts(store, queue) == (1, 0, 0)


async def release_one(store: Store, queue: Queue, message: Message) -> None:
    await release(store, queue, message)
    [again] = await lease(store, queue)
    assert again.receive_count == 1


async def save(store: Store, queue: Queue, message: Message) -> None:
    saved = await change_queue(store, queue, delay_s=1)
    assert saved.attributes.delay_s == 1
    assert await store.find_queue(queue.name) == saved


async def purge_all(store: Store, queue: Queue, message: Message) -> None:
    await store.purge_queue(queue)
    assert await counts(store, queue) == (0, 0, 0)


async def delete_whole_queue(store: Store, queue: Queue, message: Message) -> None:
    await store.delete_queue(queue)
    with pytest.raises(QueueDoesNotExist):
        await store.find_queue(queue.name)


@on_postgres
@on_both_kinds
@pytest.mark.parametrize(
    ("place", "act"),
    [
        ("delete.committed", delete_one),
        ("change_visibility.committed", hide_one),
        ("release.committed", release_one),
        ("save_queue.committed", save),
        ("purge_queue.committed", purge_all),
        ("delete_queue.committed", delete_whole_queue),
    ],
)
async def test_a_lost_connection_does_not_show_in_the_answer_of_any_verb(
    store: Store,
    failpoints: Failpoints,
    name: str,
    place: str,
    act: Callable[[Store, Queue, Message], Awaitable[None]],
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    lose_the_answer(failpoints, place, ConnectionError)
    await act(store, queue, message)
    assert not failpoints


@on_both_kinds
@pytest.mark.parametrize("error", [StoreUnavailable, RuntimeError])
async def test_any_other_error_after_the_commit_goes_to_the_caller_and_the_work_is_done(
    store: Store, failpoints: Failpoints, name: str, error: type[Exception]
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    lose_the_answer(failpoints, "delete.committed", error)
    with pytest.raises(error):
        await delete(store, queue, message)
    assert await counts(store, queue) == (0, 0, 0)
    assert await delete(store, queue, message) == [None]
