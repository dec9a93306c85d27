"""Place orders in a SQLite database, each with its job in one transaction, and charge each of them once.

    python examples/outbox.py [ORDERS]

The orders, the outbox, the inbox and the ledger are in a database of the application. A relay enqueues what is in the
outbox, and a worker charges it. Everything runs in this process, in memory but for that database. Set PENSTOCK_URL to
use a server, a file or a database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from penstock import Inbox, Job, Outbox, Penstock, Relay, Retry, Worker, current

app = Penstock(os.environ.get("PENSTOCK_URL", "memory:"))
outbox = Outbox()
folder = tempfile.TemporaryDirectory()
DATABASE = Path(folder.name) / "shop.db"


def connect() -> sqlite3.Connection:
    return sqlite3.connect(DATABASE, timeout=20)


@app.task(name="charge", queue="charges", retry=Retry(attempts=3, backoff="20ms"))
def charge(order: int, cents: int) -> None:
    """Book the amount once, however often this runs."""
    ctx = current()
    with closing(connect()) as connection:
        with ctx.once(connection) as first:
            if first:
                connection.execute("INSERT INTO ledger (order_id, cents) VALUES (?, ?)", (order, cents))
        connection.commit()
    if order % 3 == 0 and ctx.attempt == 1:
        raise ConnectionError("the worker is cut off after its commit, so the job is tried again")


def place_order(order: int) -> Job[None] | None:
    """Store an order and its job. The card of every fourth customer is refused, and then there is neither."""
    with closing(connect()) as connection:
        connection.execute("INSERT INTO orders (id, cents) VALUES (?, ?)", (order, order * 100))
        job = outbox.add_sync(connection, charge.call(order, order * 100))
        if order % 4 == 0:
            connection.rollback()
            return None
        connection.commit()
        return job


def count(table: str) -> int:
    with closing(connect()) as connection:
        number: int = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]  # noqa: S608 - our own names
        return number


async def main(orders: int) -> None:
    with closing(connect()) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)")
        connection.execute("CREATE TABLE ledger (order_id INTEGER, cents INTEGER)")
        outbox.create_sync(connection)
        Inbox().create_sync(connection)
        connection.commit()
    relay = Relay(app, f"sqlite:{DATABASE}", interval="50ms")
    worker = Worker(app, {"charges": 4})
    async with app:
        running = [asyncio.create_task(relay.run()), asyncio.create_task(worker.run())]
        jobs = [await asyncio.to_thread(place_order, order) for order in range(1, orders + 1)]
        print(f"{orders} orders tried, {count('orders')} placed")
        while count("penstock_outbox"):  # noqa: ASYNC110 - the relay may be another program
            await asyncio.sleep(0.05)
        views = []
        for job in filter(None, jobs):
            await job.result(timeout=60)
            views.append(await job.view())
        relay.stop()
        worker.stop()
        await asyncio.gather(*running)
    attempts = sum(view.attempts for view in views)
    print(
        f"{len(views)} jobs in {attempts} attempts, {count('ledger')} charges booked, {count('penstock_outbox')} left"
    )


if __name__ == "__main__":
    logging.getLogger("penstock").setLevel(logging.CRITICAL)  # Failures are part of the show.
    with folder:
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
