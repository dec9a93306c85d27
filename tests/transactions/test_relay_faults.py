"""Relays without an answer, a server or a database."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Outbox, Penstock, Relay
from penstock.client.errors import ConnectionFailed, RelayFailed
from penstock.client.transactions import databases
from penstock.client.transactions import relay_notices as notices
from penstock.domain.errors import ExtraMissing
from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import DAY_MS, MINUTE_MS, REPEAT_WINDOW_MS
from tests.end_to_end.running import RunningServer
from tests.transactions.databases import UserDatabase
from tests.transactions.relaying import PATIENCE_S, Heard, Wall, add
from tests.transactions.shops import Shop, shop_of

# -- sent, and no answer --------------------------------------------------------------------------


async def send_and_die(database: UserDatabase, shop: Shop, wall: Wall, place: str = "relay.send.answered") -> None:
    failpoints = Failpoints()

    def die() -> None:
        raise ConnectionResetError

    failpoints.arm(place, die)
    with pytest.raises(ConnectionResetError):
        await Relay(shop.app, database.url, wall_ms=wall, failpoints=failpoints).drain()


async def test_a_row_that_is_sent_again_enqueues_once(filled: UserDatabase, shop: Shop) -> None:
    ids = add(filled, shop, 17)
    wall = Wall()
    await send_and_die(filled, shop, wall)
    assert filled.count("penstock_outbox") == 1
    wall.now_ms += MINUTE_MS
    assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 0
    assert await shop.ids() == ids


async def test_within_the_retention_an_old_row_is_sent_again(filled: UserDatabase, shop: Shop) -> None:
    """The relay died before it sent anything, and comes back days later: the job is not lost."""
    ids = add(filled, shop, 17)
    wall = Wall()
    await send_and_die(filled, shop, wall, "relay.send.begun")
    wall.now_ms += 6 * DAY_MS
    assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 0
    assert await shop.ids() == ids


@pytest.mark.parametrize("of", ["job", "queue"])
async def test_a_job_that_the_server_may_have_forgotten_is_not_sent_again(
    filled: UserDatabase, shop: Shop, of: str
) -> None:
    wall = Wall()
    async with shop.app.testing() as t:
        if of == "queue":
            await shop.app.queues.create(shop.queue, retention_ms=REPEAT_WINDOW_MS)
        (job_id,) = add(filled, shop, 17, **({"retention": "5m"} if of == "job" else {}))
        await send_and_die(filled, shop, wall)
        await t.run_all()
        await t.clock.advance(days=1)
        wall.now_ms += DAY_MS
        assert await shop.ids() == []  # It has run, and is forgotten.
        assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 0
        assert await shop.ids() == []
        with filled.connect() as connection:
            (refused,) = Outbox().refused_sync(connection)
            assert refused.reason.startswith("in doubt: it was sent 1,440 minutes ago")
            assert Outbox().retry_sync(connection, job_id)  # A person says so.
            connection.commit()
        assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 0
        assert await shop.ids() == [job_id]


async def test_a_job_that_is_still_there_is_not_in_doubt(filled: UserDatabase, shop: Shop) -> None:
    ids = add(filled, shop, 17, retention="5m")
    wall = Wall()
    await send_and_die(filled, shop, wall)
    wall.now_ms += DAY_MS
    assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 0
    assert await shop.ids() == ids
    assert filled.count("penstock_outbox") == 0


async def test_a_claim_that_ended_before_the_sending_sends_nothing(filled: UserDatabase, shop: Shop) -> None:
    """The relay's machine slept in between: another may have sent the rows, and the server may have forgotten them."""
    ids = add(filled, shop, 17)
    wall = Wall()
    failpoints = Failpoints()
    failpoints.arm("relay.send.begun", lambda: setattr(wall, "now_ms", wall.now_ms + 30_000))
    relay = Relay(shop.app, filled.url, wall_ms=wall, failpoints=failpoints)
    failpoints.arm("relay.send.answered", relay.stop)
    assert await relay.drain() == 1
    assert await shop.ids() == []
    assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 0
    assert await shop.ids() == ids


@pytest.mark.slow
async def test_an_outage_of_the_server_puts_nothing_in_doubt(filled: UserDatabase, name: str, tmp_path: Path) -> None:
    socket = tmp_path / "server.sock"
    serve = ("--socket", str(socket), "--store", f"sqlite:{tmp_path / 'jobs.db'}")
    heard = Heard()
    async with Penstock(f"unix:{socket}", connect_timeout=0.1) as app:
        shop = shop_of(app, name)
        relay = Relay(app, filled.url, interval=0.02, observer=heard)
        relay._sender._timeout_s = 2.0  # noqa: SLF001 - not to wait for long
        with RunningServer(tmp_path, *serve):
            running = asyncio.create_task(relay.run())
            add(filled, shop, 1)
            async with asyncio.timeout(PATIENCE_S):
                while relay.status().enqueued < 1:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)
        relay._heard = 0.0  # noqa: SLF001 - as if it had been silent for a while
        add(filled, shop, 2)
        async with asyncio.timeout(PATIENCE_S):
            while not heard.of(notices.Lost):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        assert filled.count("penstock_outbox", "sends = 0 AND first_sent_at_ms IS NULL") == 1
        with RunningServer(tmp_path, *serve):
            await shop.wait_for(2)
            relay.stop()
            await asyncio.wait_for(running, PATIENCE_S)
    assert [notice.peer for notice in heard.of(notices.Back)] == ["server"]


# -- what does not work ---------------------------------------------------------------------------


async def test_a_database_without_the_table_is_named(database: UserDatabase, shop: Shop) -> None:
    database.run("SELECT 1") if not database.is_sqlite else database.run("CREATE TABLE t (a text)")
    with pytest.raises(RelayFailed, match=r"has no table penstock_outbox.*Outbox\(\)\.create"):
        await Relay(shop.app, database.url).run()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:/nowhere/user.db", "there is no file"),
        ("postgresql://user:secret@127.0.0.1:9/shop", "cannot be used"),
        ("postgresql://user:se#secret@127.0.0.1:9/shop", "URL of the database cannot be read"),
        ("postgresql://user:secret@[127.0.0.1:9/shop", "URL of the database cannot be read"),
        ("postgresql://user:a/secret@127.0.0.1:9/shop", "URL of the database cannot be read"),
        ("postgresql://127.0.0.1:9/shop?password=secret&sslmode=never", "sslmode"),
        ("mysql://host/shop", "postgresql://HOST/NAME or sqlite:PATH"),
        ("mysql://user:a?secret@host/shop", "postgresql://HOST/NAME or sqlite:PATH"),
        ("postgresql:user:secret@host/shop", "postgresql://HOST/NAME or sqlite:PATH"),
        ("host=127.0.0.1 user=shop password=secret", "postgresql://HOST/NAME or sqlite:PATH"),
        ("sqlite:", "postgresql://HOST/NAME or sqlite:PATH"),
    ],
)
async def test_a_database_that_is_not_there_is_named_without_its_password(url: str, message: str, shop: Shop) -> None:
    with pytest.raises(RelayFailed, match=message) as caught:
        await Relay(shop.app, url).run()
    assert "secret" not in "".join(traceback.format_exception(caught.value))


async def test_a_server_that_is_not_there_fails_a_drain_before_anything_is_claimed(
    filled: UserDatabase, shop: Shop
) -> None:
    add(filled, shop, 17)
    with pytest.raises(ConnectionFailed):
        await Relay(Penstock("http://127.0.0.1:9", connect_timeout=0.1), filled.url).drain()
    assert filled.count("penstock_outbox", "sends = 0") == 1


@pytest.mark.slow
async def test_a_running_relay_waits_for_its_server(filled: UserDatabase, name: str, tmp_path: Path) -> None:
    socket = tmp_path / "later.sock"
    heard = Heard()
    async with Penstock(f"unix:{socket}", connect_timeout=0.1) as app:
        shop = shop_of(app, name)
        relay = Relay(app, filled.url, interval=0.02, observer=heard)
        running = asyncio.create_task(relay.run())
        async with asyncio.timeout(PATIENCE_S):
            while not heard.of(notices.Lost):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        add(filled, shop, 17)
        assert relay.status().lost == "server"
        with RunningServer(tmp_path, "--socket", str(socket), "--store", "memory:"):
            await shop.wait_for(1)
            relay.stop()
            await asyncio.wait_for(running, PATIENCE_S)
    assert [notice.peer for notice in heard.of(notices.Back)] == ["server"]


def test_postgresql_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'penstock\[postgres\]'"):
        Relay("http://127.0.0.1:9", "postgresql://127.0.0.1/none")


@pytest.mark.parametrize(
    ("connect", "message"),
    [
        (lambda: None, "has to return a DB-API connection"),
        (lambda: sqlite3.connect(":memory:", isolation_level=None), "Turn autocommit off"),
    ],
)
async def test_a_function_that_returns_something_else_is_named(
    connect: Callable[[], Any], message: str, shop: Shop
) -> None:
    with pytest.raises(RelayFailed, match=message):
        await Relay(shop.app, connect=connect).run()


@pytest.mark.parametrize(
    "given", [{}, {"database": "sqlite:a", "connect": lambda: None}, {"database": "sqlite:a", "batch": 0}]
)
def test_a_relay_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(RelayFailed):
        Relay("http://127.0.0.1:9", **given)


async def test_a_database_that_goes_away_is_waited_for(user_dsn: str, shop: Shop) -> None:
    database = UserDatabase(user_dsn)
    with database.connect() as connection:
        Outbox().create_sync(connection)
        connection.commit()
    heard = Heard()
    relay = Relay(shop.app, user_dsn, interval=0.02, observer=heard)
    running = asyncio.create_task(relay.run())
    add(database, shop, 1)
    await shop.wait_for(1)
    with contextlib.closing(psycopg.connect(user_dsn, autocommit=True)) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    add(database, shop, 2)
    await shop.wait_for(2)
    relay.stop()
    await asyncio.wait_for(running, PATIENCE_S)
    assert [notice.peer for notice in heard.of(notices.Lost)] == ["database"]
    assert [notice.peer for notice in heard.of(notices.Back)] == ["database"]


async def test_what_was_sent_is_settled_once_the_database_is_back(filled: UserDatabase, shop: Shop) -> None:
    """Otherwise the queue would wait until the relay's own claim is over: this clock stands still."""
    failpoints, heard = Failpoints(), Heard()

    def lose() -> None:
        raise ConnectionResetError

    failpoints.arm("relay.settle.begun", lose)
    relay = Relay(shop.app, filled.url, interval=0.02, observer=heard, wall_ms=Wall(), failpoints=failpoints)
    first = add(filled, shop, 1)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(PATIENCE_S):
        while not heard.of(notices.Lost):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    second = add(filled, shop, 2)
    await shop.wait_for(2)
    relay.stop()
    await asyncio.wait_for(running, PATIENCE_S)
    assert await shop.ids() == first + second
    assert relay.status().enqueued == 2
    assert filled.count("penstock_outbox") == 0


# -- a database that hangs ------------------------------------------------------------------------


class Hanging(sqlite3.Connection):
    """A connection of which a statement hangs, and fails in the end."""

    hung = threading.Event()
    free = threading.Event()

    def cursor(self, *_: Any) -> Any:
        if not self.free.is_set():
            self.hung.set()
            self.free.wait(PATIENCE_S)
            raise sqlite3.OperationalError("lost")
        return super().cursor()

    def close(self) -> None:
        super().close()
        raise sqlite3.OperationalError("closed already")


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Connects to an outbox that does not answer until `Hanging.free` is set."""
    Hanging.hung.clear()
    Hanging.free.clear()
    database = UserDatabase.sqlite(tmp_path)
    with database.connect() as connection:
        Outbox().create_sync(connection)
        connection.commit()
    yield lambda: sqlite3.connect(database.url.removeprefix("sqlite:"), factory=Hanging)
    Hanging.free.set()


async def test_a_relay_can_be_ended_while_its_database_hangs(hanging: Callable[[], Any], shop: Shop) -> None:
    running = asyncio.create_task(Relay(shop.app, connect=hanging).run())
    assert await asyncio.to_thread(Hanging.hung.wait, PATIENCE_S)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=5)
    assert done, "it waits for the database"
    assert not any(thread.name.startswith("penstock-relay") and not thread.daemon for thread in threading.enumerate())


async def test_a_database_that_hangs_is_lost_and_opened_again(
    hanging: Callable[[], Any], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "COMMAND_S", 0.05)
    with pytest.raises(RelayFailed, match=r"no answer in 0\.05 s"):
        await Relay(shop.app, connect=hanging).run()
    monkeypatch.setattr(databases, "COMMAND_S", 2.0)  # It has to answer sooner than this, however slow the machine is.
    Hanging.free.set()
    heard = Heard()
    relay = Relay(shop.app, connect=hanging, interval=0.01, observer=heard)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(PATIENCE_S):
        while not heard.of(notices.Ready):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        Hanging.free.clear()
        while not heard.of(notices.Lost):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        Hanging.free.set()
        while not heard.of(notices.Back):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        relay.stop()
        await running
    assert [notice.peer for notice in heard.of(notices.Lost)] == ["database"]
