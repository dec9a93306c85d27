"""Several nodes on one PostgreSQL: their consumers share the work without loss, doubles or disorder."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator

import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import Limits
from penstock.store.port import Store
from tests.simulation.crash_victim import Victim, make_queues
from tests.simulation.ledger import Ledger
from tests.simulation.processes import Lines, Process, taken
from tests.support.postgres import PostgresServer
from tests.support.stores import Opener, PostgresDatabase

READY_TIMEOUT_S = 30.0
WORK_TIMEOUT_S = 120.0

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Opener]:
    database = PostgresDatabase(postgres_server)
    yield database
    database.drop()


@pytest.mark.parametrize("nodes", [2, pytest.param(3, marks=pytest.mark.slow)])
async def test_nodes_share_the_work(database: Opener, nodes: int) -> None:
    ledger = Ledger()
    victims: list[Victim] = []

    def tell(*words: object) -> None:
        ledger.note(" ".join(map(str, words)))
        if len(ledger.sent_all) == nodes and not ledger.to_do:
            for victim in victims:
                victim.stopping.set()

    stores = [await open_node(database) for _ in range(nodes)]
    try:
        for number, store in enumerate(stores):
            victims.append(Victim(store, await make_queues(store), str(number), 15, tell))
        async with asyncio.timeout(WORK_TIMEOUT_S):
            await asyncio.gather(*(victim.work() for victim in victims))
        for kept in victims[0].queues:
            counts = await stores[0].count_messages(kept)
            assert (counts.visible, counts.in_flight, counts.delayed) == (0, 0, 0)
    finally:
        for store in stores:
            await store.close()
    ledger.check_deliveries()
    assert not ledger.to_do


async def open_node(database: Opener) -> Store:
    return await database(clock=SystemClock(), ids=OrderedIds(), limits=Limits(), failpoints=Failpoints())


@pytest.mark.slow
def test_a_killed_node_leaves_its_work_to_the_others(postgres_server: PostgresServer) -> None:
    database = postgres_server.create_database()
    url = postgres_server.dsn(database)
    ledger, lines = Ledger(), Lines()
    # The one that is killed has no end of work: so it is killed in the middle of it, however late that is.
    nodes = [
        Process(url, str(number), batches_max=batches_max, lines=lines)
        for number, batches_max in enumerate((40, 40, sys.maxsize))
    ]
    try:
        for node in nodes:
            assert node.ready.wait(READY_TIMEOUT_S)
        listen(ledger, lines, until=lambda: len(ledger.deleted_at_ms) > 500)
        nodes.pop().kill()
        listen(ledger, lines, until=lambda: ledger.sent_all >= {"0", "1"} and not ledger.to_do)
    finally:
        exits = [node.stop(READY_TIMEOUT_S) for node in nodes]
        postgres_server.drop_database(database)
    for line in taken(lines):
        ledger.note(line)
    assert exits == [0, 0]
    assert ledger.sent_all == {"0", "1"}
    ledger.check_deliveries()
    assert not ledger.to_do


def listen(ledger: Ledger, lines: Lines, *, until: Callable[[], bool]) -> None:
    while not until():
        ledger.note(lines.get(timeout=WORK_TIMEOUT_S))
