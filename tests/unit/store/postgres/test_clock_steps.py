"""Steps of the database's clock, which all nodes go by (decision record 10)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.limits import HOUR_MS
from penstock.store.port import Store
from penstock.store.postgres.floor import Floors
from penstock.store.postgres.pinned import PinnedClock
from penstock.store.postgres.pool import Pool, Session
from tests.support.postgres import PostgresServer
from tests.support.queues import delete, lease, lease_bodies, make_queue, on_both_kinds, send

NOW = """
CREATE OR REPLACE FUNCTION penstock.now_ms(pinned bigint) RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
$$ SELECT coalesce(pinned, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + {ahead_ms}) $$
"""


class DatabaseClock:
    """The clock of a test's database, which can be set."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def set_ahead(self, ahead_ms: int) -> None:
        """Set it to be so far ahead of the true time."""
        await self.session.run_script(NOW.format(ahead_ms=ahead_ms))

    async def now_ms(self) -> int:
        now: int = await self.session.fetchval("SELECT penstock.now_ms(NULL)")
        return now


@pytest.fixture
async def clock_there(postgres_server: PostgresServer, database: str, store: Store) -> AsyncIterator[DatabaseClock]:
    session = await Session.open(postgres_server.dsn(database))
    yield DatabaseClock(session)
    await session.close()


@pytest.fixture
def floors(postgres_server: PostgresServer, database: str) -> Floors:
    return Floors(Pool(postgres_server.dsn(database), size=1, lost=lambda: None), PinnedClock(SystemClock()))


@on_both_kinds
async def test_set_back_it_ends_no_lease_early_and_is_waited_for(
    store: Store, clock_there: DatabaseClock, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "held")
    await lease(store, queue, lease_ms=HOUR_MS)
    await clock_there.set_ahead(-HOUR_MS)
    assert await lease(store, queue) == []
    # What comes now is not held up by what came before.
    await send(store, queue, "new", group="another")
    async with asyncio.timeout(30):
        while not (found := await lease_bodies(store, queue)):
            pass
    assert found == ["new"]
    await clock_there.set_ahead(HOUR_MS)
    assert "held" in await lease_bodies(store, queue)


@on_both_kinds
async def test_set_forward_it_ends_leases_early(store: Store, clock_there: DatabaseClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "held")
    await lease(store, queue, lease_ms=HOUR_MS)
    await clock_there.set_ahead(HOUR_MS)
    assert await lease_bodies(store, queue) == ["held"]


@on_both_kinds
async def test_set_back_it_hides_nothing_that_comes_after(
    store: Store, clock_there: DatabaseClock, floors: Floors, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "done")
    await delete(store, queue, *await lease(store, queue))
    partition = await clock_there.session.fetchval("SELECT partition FROM penstock.queue")

    async def advance() -> int:
        floors.seen(queue.id, partition, fifo=queue.fifo)
        await floors.advance(clock_there.session)
        return floors.of(queue.id).at_ms

    async with asyncio.timeout(30):
        done_ms = await clock_there.now_ms()
        while await advance() < done_ms:
            pass
        await clock_there.set_ahead(-HOUR_MS)
        sent_ms = await clock_there.now_ms()
        await send(store, queue, "after")
        while await clock_there.now_ms() < sent_ms + 500:
            pass
        with caplog.at_level(logging.INFO, "penstock.store.postgres.floor"):
            floor_ms = await advance()
    assert [line.levelname for line in caplog.records] == ["WARNING"]
    there = "SELECT ready_at FROM penstock.fifo_group" if queue.fifo else "SELECT visible_at FROM penstock.message"
    assert floor_ms <= await clock_there.session.fetchval(there)
