"""Connections lost while the server is still at work: the next attempt waits for the first one's end, and finds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import Limits
from penstock.store.port import Store
from penstock.store.postgres import PostgresStore
from tests.support.postgres import PostgresServer
from tests.support.queues import bodies, counts, delete, hide, lease, make_queue, on_both_kinds, send
from tests.support.severed import SeverableWay, severable_way

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'"


@pytest.fixture
async def way(postgres_server: PostgresServer) -> AsyncIterator[SeverableWay]:
    async with severable_way(postgres_server) as way:
        yield way


@pytest.fixture
async def store(way: SeverableWay, database: str) -> AsyncIterator[Store]:
    store = await PostgresStore.open(
        way.dsn(database), clock=SystemClock(), ids=OrderedIds(), limits=Limits(), failpoints=Failpoints()
    )
    yield store
    await store.close()


class Obstacle:
    """Something that holds up whoever needs the same, in a transaction of its own."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], database: str) -> None:
        self._connection = connection
        self._database = database

    async def put(self, statement: str) -> None:
        await self._connection.execute("BEGIN")
        await self._connection.execute(statement)

    async def is_waited_for(self, by: int) -> None:
        async with asyncio.timeout(30):
            while await self._connection.fetchval(WAITING, self._database) < by:
                await self._connection.execute("SELECT pg_stat_clear_snapshot()")

    async def take_away(self) -> None:
        await self._connection.execute("COMMIT")


@pytest.fixture
async def obstacle(postgres_server: PostgresServer, database: str) -> AsyncIterator[Obstacle]:
    connection = await asyncpg.connect(postgres_server.dsn(database))
    yield Obstacle(connection, database)
    await connection.close()


@on_both_kinds
async def test_a_lease_gives_what_its_first_attempt_takes_in_the_end(
    store: Store, way: SeverableWay, obstacle: Obstacle, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", group="g")
    await send(store, queue, "b", group="h")
    await obstacle.put("SELECT pg_advisory_xact_lock(1, partition) FROM penstock.queue")
    leasing = asyncio.create_task(lease(store, queue, 1))
    await obstacle.is_waited_for(by=1)
    way.sever()
    await obstacle.is_waited_for(by=2)
    await obstacle.take_away()
    messages = await leasing
    assert bodies(messages) == ["a"]
    assert await delete(store, queue, *messages) == [None]
    assert await counts(store, queue) == (1, 0, 0)


@on_both_kinds
async def test_a_change_of_visibility_answers_as_its_first_attempt_did(
    store: Store, way: SeverableWay, obstacle: Obstacle, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    table = "fifo_group" if queue.fifo else "message"
    await obstacle.put(f"SELECT FROM penstock.{table} FOR UPDATE")
    hiding = asyncio.create_task(hide(store, queue, message, lease_ms=0))
    await obstacle.is_waited_for(by=1)
    way.sever()
    await obstacle.is_waited_for(by=2)
    await obstacle.take_away()
    assert await hiding == [None]
    assert await counts(store, queue) == (1, 0, 0)
