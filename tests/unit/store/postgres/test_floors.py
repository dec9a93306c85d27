"""Scan floors: they rise over what is done, and never above a message that is still to come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import asyncpg
import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.store.postgres.floor import NO_FLOOR, Floors
from penstock.store.postgres.pinned import PinnedClock
from penstock.store.postgres.pool import APPLICATION_NAME, Pool, Session
from penstock.testing import ManualClock
from tests.support.postgres import PostgresServer
from tests.support.queues import delete, draft, lease, make_queue, on_both_kinds, send

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

APPEND = {
    False: "SELECT * FROM penstock.append(NULL, 1000, '{{{key}}}', '{{{queue}}}', '{{{key}}}', "
    "'{{1}}', '{{{delay}}}', '{{late}}', '{{late}}', '{{NULL}}', '{{NULL}}', '{{NULL}}')",
    True: "SELECT * FROM penstock.append_fifo(NULL, 1000, 1000, '{{{key}}}', '{{{queue}}}', '{{{key}}}', '{{100000}}', "
    "'{{1}}', '{{{delay}}}', '{{late}}', '{{late}}', '{{NULL}}', '{{NULL}}', '{{late}}', '{{NULL}}', '{{NULL}}')",
}
LATE = {
    False: "SELECT m.visible_at FROM penstock.message m JOIN penstock.body b USING (position) WHERE b.body = 'late'",
    True: "SELECT ready_at FROM penstock.fifo_group WHERE name = 'late'",
}


@pytest.fixture
async def session(postgres_server: PostgresServer, database: str, store: Store) -> AsyncIterator[Session]:
    session = await Session.open(postgres_server.dsn(database))
    yield session
    await session.close()


@pytest.fixture
def floors(postgres_server: PostgresServer, database: str) -> Floors:
    return Floors(Pool(postgres_server.dsn(database), size=1, lost=lambda: None), PinnedClock(SystemClock()))


@pytest.fixture
async def sender(postgres_server: PostgresServer, database: str, store: Store) -> AsyncIterator[Connection]:
    """A connection like those of the store, whose transactions the test holds open."""
    connection: Connection = await asyncpg.connect(
        postgres_server.dsn(database), server_settings={"application_name": APPLICATION_NAME}
    )
    yield connection
    await connection.close()


async def raised(floors: Floors, session: Session, queue: Queue, partition: int, *, above_ms: int) -> int:
    """Raise the floor until it is above an instant that lies in the past."""
    async with asyncio.timeout(30):
        while floors.of(queue.id).at_ms <= above_ms:
            floors.seen(queue.id, partition, fifo=queue.fifo)
            await floors.advance(session)
    return floors.of(queue.id).at_ms


async def partition_of(session: Session, queue: Queue) -> int:
    partition: int = await session.fetchval("SELECT partition FROM penstock.queue WHERE id = $1", queue.id)
    return partition


async def now_ms(session: Session) -> int:
    now: int = await session.fetchval("SELECT penstock.now_ms(NULL)")
    return now


@on_both_kinds
async def test_a_floor_rises_over_what_is_done(store: Store, session: Session, floors: Floors, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, *(draft(str(number), group=str(number)) for number in range(10)))
    await delete(store, queue, *await lease(store, queue))
    done_at_ms = await now_ms(session)
    assert floors.of(queue.id) == NO_FLOOR
    await raised(floors, session, queue, await partition_of(session, queue), above_ms=done_at_ms)


@on_both_kinds
async def test_a_floor_is_not_above_what_is_there(store: Store, session: Session, floors: Floors, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "done", group="done")
    await delete(store, queue, *await lease(store, queue))
    await send(store, queue, "waits", group="waits")
    partition = await partition_of(session, queue)
    there_at_ms = await session.fetchval(
        "SELECT ready_at FROM penstock.fifo_group" if queue.fifo else "SELECT visible_at FROM penstock.message"
    )
    assert await raised(floors, session, queue, partition, above_ms=there_at_ms - 1) == there_at_ms
    for _ in range(5):
        floors.seen(queue.id, partition, fifo=queue.fifo)
        await floors.advance(session)
    assert floors.of(queue.id).at_ms == there_at_ms


async def test_what_came_back_has_a_floor_of_its_own(store: Store, session: Session, floors: Floors) -> None:
    """A backlog that nobody received yet does not hold it down."""
    queue = await make_queue(store)
    await send(store, queue, "done")
    await delete(store, queue, *await lease(store, queue, lease_ms=0))
    await send(store, queue, "waits")
    done_at_ms = await now_ms(session)
    partition = await partition_of(session, queue)
    async with asyncio.timeout(30):
        while floors.of(queue.id).returned_at_ms <= done_at_ms:
            floors.seen(queue.id, partition, fifo=False)
            await floors.advance(session)
    assert floors.of(queue.id).at_ms <= done_at_ms
    [message] = await lease(store, queue, lease_ms=0)
    back_at_ms = await session.fetchval("SELECT visible_at FROM penstock.message WHERE returned")
    async with asyncio.timeout(30):
        while floors.of(queue.id).returned_at_ms < back_at_ms:
            floors.seen(queue.id, partition, fifo=False)
            await floors.advance(session)
    assert floors.of(queue.id).returned_at_ms == back_at_ms
    assert message.body == "waits"


@on_both_kinds
@pytest.mark.parametrize("delay_ms", [0, 50])
async def test_a_floor_does_not_pass_a_message_whose_transaction_is_still_open(
    store: Store, session: Session, floors: Floors, sender: Connection, name: str, delay_ms: int
) -> None:
    queue = await make_queue(store, name)
    partition = await partition_of(session, queue)
    began_ms = await now_ms(session)
    transaction = sender.transaction()
    await transaction.start()
    key = "\\\\x" + "00" * 16
    await sender.execute(APPEND[queue.fifo].format(key=f'"{key}"', queue=queue.id, delay=delay_ms))
    # Time goes on while the transaction stays open, as in a sender that is stopped or far away.
    async with asyncio.timeout(30):
        while await now_ms(session) < began_ms + 500:
            floors.seen(queue.id, partition, fifo=queue.fifo)
            await floors.advance(session)
    await transaction.commit()
    late_at_ms = await session.fetchval(LATE[queue.fifo])
    assert floors.of(queue.id).at_ms <= late_at_ms
    # And the floor is one that has risen as far as it may.
    assert floors.of(queue.id).at_ms >= began_ms - 1_000


async def test_what_a_node_knows_is_forgotten_with_its_connection(
    store: Store, session: Session, floors: Floors
) -> None:
    queue = await make_queue(store)
    now = await now_ms(session)
    await raised(floors, session, queue, await partition_of(session, queue), above_ms=now - 1_000)
    floors.reset()
    assert floors.of(queue.id) == NO_FLOOR


async def test_another_partition_has_another_floor(store: Store, session: Session, floors: Floors) -> None:
    queue = await make_queue(store)
    first = await partition_of(session, queue)
    now = await now_ms(session)
    await raised(floors, session, queue, first, above_ms=now - 1_000)
    await store.purge_queue(queue)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    assert message.body == "a"
    assert floors.of(queue.id).partition == first


async def test_there_is_no_floor_while_the_time_is_pinned(
    postgres_server: PostgresServer, database: str, store: Store, session: Session
) -> None:
    pool = Pool(postgres_server.dsn(database), size=1, lost=lambda: None)
    floors = Floors(pool, PinnedClock(ManualClock()))
    floors.seen(1, 1, fifo=False)
    await floors.advance(session)
    assert floors.of(1) == NO_FLOOR


async def test_there_is_no_floor_if_our_sessions_cannot_be_seen(
    store: Store, session: Session, floors: Floors, sender: Connection
) -> None:
    queue = await make_queue(store)
    partition = await partition_of(session, queue)
    now = await now_ms(session)
    await raised(floors, session, queue, partition, above_ms=now - 1_000)
    await sender.execute("SET track_activities = off")
    floors.seen(queue.id, partition, fifo=False)
    await floors.advance(session)
    assert floors.of(queue.id) == NO_FLOOR
