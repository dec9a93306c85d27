"""Leases whose callers go away at a bad moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.domain.limits import Limits
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite import commits as commits_module
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


async def test_a_lease_that_failed_as_its_caller_left_gives_back_nothing_of_another(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    queue = await make_queue(store)
    await send(store, queue, "a")
    calls = Calls(store)
    refusals = [True]
    # As a full disk would, the first one only.
    store._parts.transaction.db.set_commit_hook(lambda: bool(refusals and refusals.pop()))  # noqa: SLF001
    # The other's turn comes right after the failure, and gives it the receipt that was not given.
    monkeypatch.setattr(commits_module, "CALLS_PER_TRANSACTION_MAX", 1)
    leaving = asyncio.create_task(lease(store, queue))
    staying = asyncio.create_task(lease(store, queue))
    calls.answered = leaving.cancel
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert len(calls.made) == 2
    assert calls.made[0].exception() is not None, "it failed before it was cancelled"
    assert bodies(await staying) == ["a"]
    assert await counts(store, queue) == (0, 1, 0)


async def test_a_lease_that_cannot_be_given_back_keeps_nobody_waiting(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(limits=Limits(pending_operations_max=2))
    queue = await make_queue(store)
    await send(store, queue, "a")
    synced: list[Callable[[None], None]] = []
    with monkeypatch.context() as patched:
        patched.setattr(store._commits._log, "start", synced.append)  # noqa: SLF001 # To leave during the sync.
        leaving = asyncio.create_task(lease(store, queue))
        staying = asyncio.create_task(send(store, queue, "b"))
        while not synced:  # noqa: ASYNC110 # Two turns of the loop, or so.
            await asyncio.sleep(0)
    leaving.cancel()
    waiting = [asyncio.create_task(send(store, queue, body)) for body in "cd"]
    await asyncio.sleep(0)
    synced[0](None)
    await asyncio.gather(staying, *waiting)
    assert await counts(store, queue) == (2, 2, 0), "it comes back when its lease is over"
    assert "could not be given back: 2 operations wait" in caplog.text
