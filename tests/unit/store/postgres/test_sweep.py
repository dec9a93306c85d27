"""Sweeping what only this store leaves behind."""

from __future__ import annotations

import asyncpg
import pytest

from penstock.domain.limits import Limits
from penstock.store.postgres.sql import statements
from tests.support.postgres import PostgresServer
from tests.support.queues import draft, make_queue, send
from tests.unit.store.postgres.conftest import OpenNode


async def test_all_groups_of_a_purged_queue_are_swept(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    store = await open_node(limits=Limits(sweep_rows_max=10))
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, *(draft(group=str(number)) for number in range(25)))
    await store.purge_queue(queue)
    postgres_server.psql("UPDATE penstock.retired_partition SET retired_at = now() - interval '1 hour'", database)
    while await store.sweep():
        pass
    assert postgres_server.psql("SELECT count(*) FROM penstock.retired_partition", database) == "0"
    assert postgres_server.psql("SELECT count(*) FROM penstock.fifo_group", database) == "0"


@pytest.mark.parametrize("table", ["append_outcomes", "lease_outcomes", "work_outcomes", "deduplication"])
@pytest.mark.usefixtures("store")
async def test_a_sweep_does_not_walk_over_what_is_not_due(
    postgres_server: PostgresServer, database: str, table: str
) -> None:
    connection = await asyncpg.connect(postgres_server.dsn(database))
    await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    plan = await connection.fetch(f"EXPLAIN {statements('sweep')[table]}", None, 0, 1_000)
    await connection.close()
    [bounds] = [line for (line,) in plan if "expires_at >=" in line]
    assert "Index Cond" in bounds
    assert "expires_at <=" in bounds
