"""Relays and programs that are killed at every step: nothing is lost, nothing is doubled."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Outbox, Penstock, Relay
from penstock.domain.clock import SystemClock
from tests.end_to_end.running import RunningServer
from tests.support.campaigns import GATHERING_EVIDENCE, campaign, trials
from tests.transactions.databases import UserDatabase
from tests.transactions.nurseries import Nursery
from tests.transactions.shops import Shop, shop_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 if GATHERING_EVIDENCE else 120)]

PLACES = [
    f"relay.{place}"
    for place in (
        "claim.begun",
        "claim.committed",
        "send.begun",
        "send.answered",
        "settle.begun",
        "settle.committed",
    )
]
PAIRS = [("sqlite", "postgres_node"), ("postgres", "sqlite_server")]
MORE_PAIRS = [("sqlite", "sqlite_server"), ("postgres", "postgres_node")]
Record = Callable[[str, object], None]


@pytest.fixture(params=PAIRS + (MORE_PAIRS if GATHERING_EVIDENCE else []), ids=" ".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[UserDatabase, RunningServer]:
    """A database of the user's and a server, each on SQLite and PostgreSQL."""
    kind, server = request.param
    database = UserDatabase.sqlite(tmp_path) if kind == "sqlite" else UserDatabase(request.getfixturevalue("user_dsn"))
    with database.connect() as connection:
        Outbox().create_sync(connection)
        connection.execute("CREATE TABLE orders (number integer)")
        connection.commit()
    return database, request.getfixturevalue(server)


def place_orders(database: UserDatabase, shop: Shop, first: int, count: int) -> None:
    with database.connect() as connection:
        for number in range(first, first + count):
            connection.execute(f"INSERT INTO orders (number) VALUES ({number})")
            Outbox().add_sync(connection, shop.confirm.call(number))
        connection.commit()


async def drain_later(app: Penstock, database: UserDatabase) -> None:
    """Relay once the claims of those that died are over."""
    wall_ms = SystemClock().wall_ms
    assert await Relay(app, database.url, wall_ms=lambda: wall_ms() + 31_000).drain() == 0


@campaign
async def test_a_relay_that_is_killed_loses_and_doubles_nothing(
    nursery: Nursery, pair: tuple[UserDatabase, RunningServer], name: str, record_property: Record
) -> None:
    database, server = pair
    async with Penstock(server.url) as app:
        shop = shop_of(app, name)
        placed = kills = 0
        chance = random.Random(17)
        for trial in range(trials(20)):
            for place in PLACES:
                place_orders(database, shop, placed, 7)
                placed += 7
                passes = chance.randrange(2) if trial else 0
                ended = nursery.run("relay", database.url, server.url, place, passes)
                assert ended == -signal.SIGKILL
                kills += 1
                await drain_later(app, database)
                assert database.count("penstock_outbox") == 0
        assert sorted(await shop.orders()) == list(range(placed))
    record_property("evidence", f"{kills} kills of a relay, {placed} orders, {placed} jobs")


@campaign
async def test_a_job_exists_if_and_only_if_its_order_does(
    nursery: Nursery, pair: tuple[UserDatabase, RunningServer], name: str, record_property: Record
) -> None:
    database, server = pair
    async with Penstock(server.url) as app:
        shop = shop_of(app, name)
        placed = 0
        for _ in range(trials(20)):
            for place in ("inserted", "added", "committed", "nowhere"):
                ended = nursery.run("order", database.url, name, placed, place)
                assert ended == (0 if place == "nowhere" else -signal.SIGKILL)
                placed += 1
        await drain_later(app, database)
        orders = [number for (number,) in database.run("SELECT number FROM orders ORDER BY number")]
        assert await shop.orders() == orders
        assert len(orders) == placed // 2
    record_property("evidence", f"{placed} orders, {placed * 3 // 4} kills, {len(orders)} committed, as many jobs")
