from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from penstock import Outbox, Relay
from penstock.client.transactions import relay_notices as notices
from penstock.domain.failpoints import Failpoints
from tests.transactions.databases import UserDatabase
from tests.transactions.relaying import PATIENCE_S, Heard, Wall, add
from tests.transactions.shops import Shop

# -- what it does ---------------------------------------------------------------------------------


async def test_jobs_are_enqueued_in_their_order_and_rows_are_gone(filled: UserDatabase, shop: Shop) -> None:
    ids = [*add(filled, shop, *range(1_000)), *add(filled, shop, *range(1_000, 1_203))]
    heard = Heard()
    assert await Relay(shop.app, filled.url, observer=heard).drain() == 0
    assert await shop.ids() == ids
    assert filled.count("penstock_outbox") == 0
    assert [notice.jobs for notice in heard.of(notices.Enqueued)] == [500, 500, 203]


async def test_a_job_that_is_rolled_back_is_never_sent(filled: UserDatabase, shop: Shop) -> None:
    with filled.connect() as connection:
        job = Outbox().add_sync(connection, shop.confirm.call(17))
        connection.rollback()
    assert await Relay(shop.app, filled.url).drain() == 0
    assert job.id not in await shop.ids()


async def test_a_delay_counts_from_the_insertion(filled: UserDatabase, shop: Shop) -> None:
    (job_id,) = add(filled, shop, 17, delay=3600)
    await Relay(shop.app, filled.url).drain()
    view = await shop.app.jobs.get(job_id)
    assert view.state == "scheduled"


async def test_a_running_relay_takes_new_rows_until_it_is_stopped(filled: UserDatabase, shop: Shop) -> None:
    relay = Relay(shop.app, filled.url, interval=0.02)
    running = asyncio.create_task(relay.run())
    for order in range(3):
        add(filled, shop, order)
        await shop.wait_for(order + 1)
    relay.stop("test")
    await asyncio.wait_for(running, PATIENCE_S)
    status = relay.status()
    assert (status.enqueued, status.set_aside, status.waiting) == (3, 0, 0)


async def test_a_notification_ends_a_long_wait(user_dsn: str, shop: Shop) -> None:
    database = UserDatabase(user_dsn)
    with database.connect() as connection:
        Outbox().create_sync(connection)
        connection.commit()
    relay = Relay(shop.app, user_dsn, interval=3600)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(PATIENCE_S):
        while relay.status().waiting is None or not relay.database.notifies:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    add(database, shop, 17)
    await shop.wait_for(1)
    relay.stop()
    await asyncio.wait_for(running, PATIENCE_S)


async def test_a_function_of_the_user_connects_to_any_database(tmp_path: Path, shop: Shop) -> None:
    database = UserDatabase.sqlite(tmp_path)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "user.db", timeout=20)

    with database.connect() as connection:
        Outbox().create_sync(connection)
        connection.commit()
    add(database, shop, 1, 2)
    assert await Relay(shop.app, connect=connect).drain() == 0
    assert await shop.orders() == [1, 2]


async def test_a_relay_can_run_in_a_thread(filled: UserDatabase, shop: Shop) -> None:
    add(filled, shop, 17)
    assert await asyncio.to_thread(Relay(shop.app, filled.url).drain_sync) == 0
    assert await shop.orders() == [17]


# -- several --------------------------------------------------------------------------------------


async def test_a_queue_that_another_relay_has_rows_of_is_left_to_it(filled: UserDatabase, shop: Shop) -> None:
    add(filled, shop, 1, 2, 3)
    add(filled, shop, 9, queue=f"{shop.queue}-other")
    failpoints = Failpoints()
    held = asyncio.Event()
    go_on = asyncio.Event()

    async def hold() -> None:
        held.set()
        await go_on.wait()

    failpoints.arm("relay.send.begun", hold)
    first = asyncio.create_task(Relay(shop.app, filled.url, batch=2, failpoints=failpoints).drain())
    await asyncio.wait_for(held.wait(), PATIENCE_S)
    assert await Relay(shop.app, filled.url).drain() == 3
    assert await shop.orders(f"{shop.queue}-other") == [9]
    assert await shop.orders() == []
    go_on.set()
    assert await asyncio.wait_for(first, PATIENCE_S) == 0
    assert await shop.orders() == [1, 2, 3]


async def test_many_relays_enqueue_each_job_once(filled: UserDatabase, shop: Shop) -> None:
    ids = add(filled, shop, *range(200))
    relays = [Relay(shop.app, filled.url, batch=7, interval=0.01) for _ in range(4)]
    running = [asyncio.create_task(relay.run()) for relay in relays]
    await shop.wait_for(200)
    for relay in relays:
        relay.stop()
    await asyncio.wait_for(asyncio.gather(*running), PATIENCE_S)
    assert await shop.ids() == ids
    assert sum(relay.status().enqueued for relay in relays) == 200


async def test_a_claim_that_is_over_is_taken_by_another(filled: UserDatabase, shop: Shop) -> None:
    add(filled, shop, 17)
    wall = Wall()
    failpoints = Failpoints()

    def die() -> None:
        raise ConnectionResetError

    failpoints.arm("relay.send.begun", die)
    with pytest.raises(ConnectionResetError):
        await Relay(shop.app, filled.url, wall_ms=wall, failpoints=failpoints).drain()
    assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 1
    wall.now_ms += 30_000
    assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 0
    assert await shop.orders() == [17]


# -- refusals -------------------------------------------------------------------------------------


async def test_what_is_refused_for_good_is_set_aside_and_blocks_nothing(filled: UserDatabase, shop: Shop) -> None:
    (taken,) = add(filled, shop, 1)
    await Relay(shop.app, filled.url).drain()
    with filled.connect() as connection:
        # The id of another job.
        Outbox().add_sync(connection, shop.confirm.opts(id=taken).call(2))
        connection.commit()
    add(filled, shop, 3)
    heard = Heard()
    assert await Relay(shop.app, filled.url, observer=heard).drain() == 0
    assert await shop.orders() == [1, 3]
    (aside,) = heard.of(notices.SetAside)
    assert aside.job == taken
    assert "job-exists" in aside.reason
    with filled.connect() as connection:
        outbox = Outbox()
        (refused,) = outbox.refused_sync(connection)
        assert (refused.id, refused.queue, refused.sends) == (taken, shop.queue, 1)
        assert "job-exists" in refused.reason
        assert outbox.waiting_sync(connection) == 0
        assert outbox.retry_sync(connection, taken)
        assert outbox.waiting_sync(connection) == 1
        connection.commit()
    await Relay(shop.app, filled.url).drain()
    with filled.connect() as connection:
        assert outbox.discard_sync(connection, taken)
        assert not outbox.discard_sync(connection, taken)
        connection.commit()
    assert filled.count("penstock_outbox") == 0


HAND = "INSERT INTO penstock_outbox (id, queue, request) VALUES ('{id}', '{queue}', '{request}')"
A_UUID = "01a1ee33-3d4c-7000-9dfc-084a8311c0c{}"


async def test_rows_put_there_by_hand_are_sent_or_set_aside(filled: UserDatabase, shop: Shop) -> None:
    queue = shop.queue
    fine: dict[str, object] = {"queue": queue, "task": "confirm"}
    wrong = [
        '{"queue": ',
        "[1, 2]",
        json.dumps({**fine, "queue": "other"}),
        json.dumps({**fine, "id": A_UUID.format("f")}),
        json.dumps({"queue": queue}),
        json.dumps({**fine, "colour": "red"}),
        json.dumps({**fine, "payload": "x" * 1_300_000}),
        json.dumps({**fine, "payload": "x" * 1_100_000}),
    ]
    for number, request in enumerate(wrong):
        filled.run(HAND.format(id=A_UUID.format(number), queue=queue, request=request))
    filled.run(HAND.format(id="no-uuid", queue=queue, request=json.dumps(fine)))
    good = json.dumps({**fine, "payload": {"order": 7}})
    filled.run(HAND.format(id=A_UUID.format("a"), queue=queue, request=good))
    assert await Relay(shop.app, filled.url).drain() == 0
    assert await shop.ids() == [A_UUID.format("a")]
    assert filled.count("penstock_outbox", "refused_at_ms IS NOT NULL") == len(wrong) + 1
    reasons = dict(filled.run("SELECT id, reason FROM penstock_outbox"))
    assert all(reasons.values()), reasons


async def test_bytes_that_are_no_text_are_set_aside(tmp_path: Path, shop: Shop) -> None:
    database = UserDatabase.sqlite(tmp_path)
    with database.connect() as connection:
        Outbox().create_sync(connection)
        connection.execute(
            "INSERT INTO penstock_outbox (id, queue, request) VALUES (?, ?, CAST(X'7B22FF' AS text))",
            (A_UUID.format(1), shop.queue),
        )
        connection.execute(
            "INSERT INTO penstock_outbox (id, queue, request) VALUES (?, CAST(X'FF' AS text), '{}')",
            (A_UUID.format(2),),
        )
        connection.commit()
    add(database, shop, 17)
    assert await Relay(shop.app, database.url).drain() == 0
    assert await shop.orders() == [17]
    assert database.count("penstock_outbox") == 2


async def test_what_is_refused_for_now_waits_and_keeps_its_queues_order(filled: UserDatabase, shop: Shop) -> None:
    await shop.app.queues.create(shop.queue, depth_max=2)
    other = f"{shop.queue}-other"
    add(filled, shop, 1, 2, 3, 4)
    add(filled, shop, 9, queue=other)
    wall = Wall()
    heard = Heard()
    relay = Relay(shop.app, filled.url, observer=heard, wall_ms=wall)
    assert await relay.drain() == 2
    assert await shop.orders() == [1, 2]
    assert await shop.orders(other) == [9]
    (put_off,) = heard.of(notices.PutOff)
    assert (put_off.queue, put_off.jobs) == (shop.queue, 2)
    add(filled, shop, 5)
    await shop.app.queues.change(shop.queue, depth_max=100)
    assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 3  # Number 5 waits behind the others.
    wall.now_ms += 30_000
    assert await Relay(shop.app, filled.url, wall_ms=wall).drain() == 0
    assert await shop.orders() == [1, 2, 3, 4, 5]
