"""A program that places orders, each with its job in the outbox, and kills itself where it is told to.

The places: inserted, added, committed, nowhere.
"""

from __future__ import annotations

import os
import signal

from penstock import Outbox, Penstock
from tests.transactions.databases import UserDatabase
from tests.transactions.shops import shop_of


def main(url: str, queue: str, order: str, place: str) -> None:
    shop = shop_of(Penstock("http://127.0.0.1:9"), queue)

    def reach(here: str) -> None:
        if here == place:
            os.kill(os.getpid(), signal.SIGKILL)

    with UserDatabase(url).connect() as connection:
        connection.execute(f"INSERT INTO orders (number) VALUES ({order})")
        reach("inserted")
        Outbox().add_sync(connection, shop.confirm.call(int(order)))
        reach("added")
        connection.commit()
        reach("committed")
