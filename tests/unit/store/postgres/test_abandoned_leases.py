"""Leases whose caller went away: given back, unless the caller came back with the same attempt key."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.message import Message
from penstock.domain.queue import Queue
from penstock.store.postgres import PostgresStore
from tests.support.queues import attempt_key, bodies, counts, delete, lease, make_queue, on_both_kinds, send
from tests.unit.store.postgres.conftest import OpenNode

KEY = attempt_key("receive")


class Caller:
    """Leases a message, and goes away once that is committed, before the answer."""

    def __init__(self, store: PostgresStore, failpoints: Failpoints) -> None:
        self._store = store
        self._failpoints = failpoints

    async def lease_and_leave(self, queue: Queue, retry_at: PostgresStore | None) -> list[Message]:
        """Return what a retry is given that comes while the first call is being abandoned."""
        retried: list[Message] = []

        async def leave() -> None:
            leasing.cancel()
            if retry_at is not None:
                retried.extend(await lease(retry_at, queue, attempt=KEY))

        self._failpoints.arm("lease.committed", leave)
        leasing = asyncio.create_task(lease(self._store, queue, attempt=KEY))
        with pytest.raises(asyncio.CancelledError):
            await leasing
        # What is under way, giving back included, is finished first.
        await self._store.close()
        return retried


@on_both_kinds
async def test_a_lease_with_a_key_is_given_back(
    store: PostgresStore, open_node: OpenNode, failpoints: Failpoints, name: str
) -> None:
    other, queue = await open_node(), await make_queue(store, name)
    await send(store, queue, "a")
    await Caller(store, failpoints).lease_and_leave(queue, retry_at=None)
    [message] = await lease(other, queue, attempt=KEY)
    assert (message.body, message.receive_count) == ("a", 1)


@on_both_kinds
async def test_a_lease_that_a_retry_has_been_given_is_not_given_back(
    store: PostgresStore, open_node: OpenNode, failpoints: Failpoints, name: str
) -> None:
    other, queue = await open_node(), await make_queue(store, name)
    await send(store, queue, "a")
    retried = await Caller(store, failpoints).lease_and_leave(queue, retry_at=other)
    assert bodies(retried) == ["a"]
    assert await lease(other, queue) == []
    assert await delete(other, queue, *retried) == [None]
    assert await counts(other, queue) == (0, 0, 0)
