"""What tests of relays share: what a relay said, a clock to move, and orders in an outbox."""

from __future__ import annotations

from typing import Any

from penstock import Outbox
from penstock.client.transactions import relay_notices as notices
from tests.transactions.databases import UserDatabase
from tests.transactions.shops import Shop

PATIENCE_S = 45.0


class Heard:
    """Keeps all notices."""

    def __init__(self) -> None:
        self.all: list[notices.RelayNotice] = []

    def notice(self, notice: notices.RelayNotice) -> None:
        self.all.append(notice)

    def of(self, kind: type[notices.RelayNotice]) -> list[Any]:
        return [notice for notice in self.all if isinstance(notice, kind)]


class Wall:
    """A clock of the wall that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def add(database: UserDatabase, shop: Shop, *orders: int, **options: Any) -> list[str]:
    with database.connect() as connection:
        jobs = Outbox().add_many_sync(connection, [shop.confirm.opts(**options).call(order) for order in orders])
        connection.commit()
    return [job.id for job in jobs]
