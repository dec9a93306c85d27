"""Leases whose callers go away at a bad moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.calls import Call
from tests.support.queues import bodies, counts, lease, make_queue, send
from tests.unit.store.sqlite.conftest import OpenStore


class Calls:
    """Sees every call of the store before its caller sees the answer, and passes it on."""

    def __init__(self, store: SqliteStore) -> None:
        self._run = store._commits.run  # noqa: SLF001 # To step in between a failure and its caller.
        self.made: list[asyncio.Future[Any]] = []
        self.answered: Callable[[], object] = int
        store._commits.run = self.run  # type: ignore[method-assign] # noqa: SLF001 # As above.

    def run(self, call: Call[Any]) -> asyncio.Future[Any]:
        future = self._run(call)
        future.add_done_callback(lambda _: self.answered())
        self.made.append(future)
        return future


async def test_a_lease_that_failed_as_its_caller_left_gives_back_nothing_of_another(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store)
    await send(store, queue, "a")
    calls = Calls(store)
    committing, go_on = threading.Event(), threading.Event()

    def refuse_the_first() -> bool:
        first = not committing.is_set()
        committing.set()
        assert go_on.wait(timeout=30)
        return first

    store._parts.transaction.db.set_commit_hook(refuse_the_first)  # noqa: SLF001 # As a full disk would.
    leaving = asyncio.create_task(lease(store, queue))
    calls.answered = leaving.cancel
    assert await asyncio.to_thread(committing.wait, 10)
    # The other's turn comes in the same instant as the failure, and gives it the receipt that was not given.
    staying = asyncio.create_task(lease(store, queue))
    await asyncio.sleep(0)
    assert len(calls.made) == 2
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert calls.made[0].exception() is not None, "it failed before it was cancelled"
    assert bodies(await staying) == ["a"]
    assert await counts(store, queue) == (0, 1, 0)
