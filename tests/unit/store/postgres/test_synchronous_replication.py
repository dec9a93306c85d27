"""Synchronous replication: a commit whose wait for the standby was given up is not acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.store.port import Store
from tests.support.postgres import PostgresServer
from tests.support.queues import attempt_key, counts, delete, draft, lease, make_queue, on_both_kinds, send

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event = 'SyncRep'"
GIVE_UP = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE datname = '{}' AND wait_event = 'SyncRep'"


class Standby:
    """A synchronous standby that is away, until it is said to be needed no longer."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self._server = server
        self._database = database

    async def is_waited_for(self) -> None:
        async with asyncio.timeout(10):
            while await self._ask(WAITING) == "0":
                pass

    async def is_given_up(self) -> None:
        """End the waits, as an operator or a time limit does: the server then says that it has committed."""
        assert await self._ask(GIVE_UP) != "0"

    async def _ask(self, question: str) -> str:
        return await asyncio.to_thread(self._server.psql, question.format(self._database))

    def needed(self, name: str) -> None:
        self._server.psql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self._server.psql("SELECT pg_reload_conf()")


@pytest.fixture
def standby(postgres_server: PostgresServer, database: str) -> Iterator[Standby]:
    standby = Standby(postgres_server, database)
    yield standby
    standby.needed("")


@on_both_kinds
async def test_an_append_is_acknowledged_only_once_it_is_replicated(store: Store, standby: Standby, name: str) -> None:
    queue = await make_queue(store, name)
    standby.needed("away")
    append = asyncio.create_task(store.append(queue, [draft("a", group="g")]))
    for _ in range(2):
        await standby.is_waited_for()
        await standby.is_given_up()
        # It has been committed here, and the server said so; yet the store waits again.
        await standby.is_waited_for()
        assert not append.done()
    standby.needed("")
    [answer] = await append
    [message] = await lease(store, queue)
    assert message.message_id == getattr(answer, "message_id", None)
    assert await counts(store, queue) == (0, 1, 0)


async def test_a_delete_is_acknowledged_only_once_it_is_replicated(store: Store, standby: Standby) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    standby.needed("away")
    deletion = asyncio.create_task(delete(store, queue, message))
    await standby.is_waited_for()
    await standby.is_given_up()
    await standby.is_waited_for()
    assert not deletion.done()
    standby.needed("")
    assert await deletion == [None]


async def test_an_earlier_answer_is_given_only_once_it_is_replicated(store: Store, standby: Standby) -> None:
    """The first attempt may have been committed here only; whoever repeats its answer vouches for it."""
    queue, key = await make_queue(store), attempt_key("send")
    first = await store.append(queue, [draft("a")], attempt=key)
    standby.needed("away")
    again = asyncio.create_task(store.append(queue, [draft("a")], attempt=key))
    await standby.is_waited_for()
    assert not again.done()
    standby.needed("")
    assert await again == first


async def test_a_change_of_a_queue_is_acknowledged_only_once_it_is_replicated(store: Store, standby: Standby) -> None:
    queue = await make_queue(store)
    standby.needed("away")
    save = asyncio.create_task(store.save_queue(queue, tags={"team": "blue"}))
    await standby.is_waited_for()
    await standby.is_given_up()
    await standby.is_waited_for()
    assert not save.done()
    standby.needed("")
    saved = await save
    assert saved is not None
    assert saved.revision == queue.revision + 1
