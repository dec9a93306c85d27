"""Counting seldom: when a count must be made, and that limits hold where it is not."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.errors import OverLimit
from penstock.domain.limits import Limits
from penstock.domain.message import Sent
from penstock.store.postgres.counts import COUNTED_ANEW_MAX, IN_FLIGHT_EXACT_MAX, InFlight
from penstock.store.postgres.pinned import PinnedClock
from penstock.store.postgres.store import CONNECTIONS_MAX
from penstock.testing import ManualClock
from tests.support.postgres import PostgresServer
from tests.support.queues import counts, draft, lease, lease_bodies, make_queue, on_both_kinds, send
from tests.unit.store.postgres.conftest import OpenNode

LARGE = 100 * IN_FLIGHT_EXACT_MAX


@pytest.fixture
def in_flight() -> InFlight:
    return InFlight(PinnedClock(SystemClock()))


async def test_a_small_limit_is_counted_at_every_lease(in_flight: InFlight) -> None:
    in_flight.leased(1, 1, counted=1, took_s=0)
    assert in_flight.doubtful(1, IN_FLIGHT_EXACT_MAX)


async def test_a_pinned_time_has_everything_counted() -> None:
    in_flight = InFlight(PinnedClock(ManualClock()))
    in_flight.leased(1, 1, counted=1, took_s=0)
    assert in_flight.doubtful(1, LARGE)


async def test_far_from_a_large_limit_one_count_serves_many_leases(in_flight: InFlight) -> None:
    assert in_flight.doubtful(1, LARGE)
    in_flight.leased(1, 10, counted=0, took_s=0)
    assert not in_flight.doubtful(1, LARGE)
    assert in_flight.doubtful(2, LARGE)


async def test_while_one_lease_counts_others_need_not(in_flight: InFlight) -> None:
    assert in_flight.doubtful(1, LARGE)
    assert not in_flight.doubtful(1, LARGE)


@pytest.mark.parametrize("counted", [0, LARGE // 2])
async def test_near_a_large_limit_every_lease_counts(in_flight: InFlight, counted: int) -> None:
    in_flight.leased(1, 0, counted=counted, took_s=0)
    in_flight.leased(1, LARGE // 2 - counted, counted=None, took_s=0)
    assert in_flight.doubtful(1, LARGE)
    assert in_flight.doubtful(1, LARGE)


@on_both_kinds
async def test_a_limit_above_what_is_always_counted_holds_too(open_node: OpenNode, name: str) -> None:
    limit = IN_FLIGHT_EXACT_MAX + 100
    store = await open_node(limits=Limits(in_flight_standard_max=limit, in_flight_fifo_max=limit))
    queue = await make_queue(store, name)
    for first in range(0, limit + 300, 100):
        await send(store, queue, *(draft("x", group=str(number)) for number in range(first, first + 100)))
    given = 0
    while given < limit:
        messages = await lease(store, queue, 150, lease_ms=600_000)
        assert messages
        given += len(messages)
    assert given == limit
    if queue.fifo:
        assert await lease(store, queue, 1) == []
    else:
        with pytest.raises(OverLimit):
            await lease(store, queue, 1)


async def test_counts_at_the_same_time_share_one_query(open_node: OpenNode) -> None:
    store = await open_node()
    queue = await make_queue(store)
    await send(store, queue, "a")
    assert await asyncio.gather(*(counts(store, queue) for _ in range(20))) == [(1, 0, 0)] * 20


@on_both_kinds
async def test_a_count_that_is_believed_includes_what_this_node_sent_since(open_node: OpenNode, name: str) -> None:
    store = await open_node()
    queue = await make_queue(store, name)
    many = [draft("x", group=str(number)) for number in range(COUNTED_ANEW_MAX + 1)]
    await send(store, queue, *many)
    stored = len(many)
    for sent in range(1, 6):
        assert await counts(store, queue) == (stored + sent - 1, 0, sent - 1)
        await send(store, queue, draft("x", group="x"), draft("x", group="x", delay_ms=900_000))
        # What was not stored again does not count.
        [again] = await store.append(queue, [draft("x", group="y")], attempt=b"the same attempt")
        assert isinstance(again, Sent)
        stored += sent == 1


async def test_counts_that_take_long_leave_connections_to_others(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    store = await open_node()
    queue = await make_queue(store)
    many = [await make_queue(store, f"{number}.fifo") for number in range(2 * CONNECTIONS_MAX)]
    obstacle = await asyncpg.connect(postgres_server.dsn(database))
    async with obstacle.transaction():
        await obstacle.execute("LOCK TABLE penstock.fifo_message IN ACCESS EXCLUSIVE MODE")
        counting = asyncio.gather(*(counts(store, one) for one in many))
        async with asyncio.timeout(30):
            await send(store, queue, "a")
            assert await lease_bodies(store, queue) == ["a"]
    await obstacle.close()
    assert await counting == [(0, 0, 0)] * len(many)
