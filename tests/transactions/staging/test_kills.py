"""kill -9 of applications in the middle of transactions, and of nodes in the middle of taking jobs in."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.running import RunningServer
from tests.support.campaigns import campaign, trials
from tests.transactions.nurseries import Nursery
from tests.transactions.staging.conftest import OpenEngine
from tests.transactions.staging.steps import Connection, payloads, stage, take

STRIDE = 1_000_000
AFTER_S_MAX = 0.03
PLACES = ["jobs.take_staged.begun", "jobs.take_staged.written", "jobs.take_staged.committed"]
TAKEN_S_MAX = 50.0
STAGED = "SELECT count(*) FROM penstock.staged_job"
UNDER_WAY = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> 'penstock' AND state <> 'idle'
"""


async def _ordered(connection: Connection) -> Counter[int]:
    return Counter(row["id"] for row in await connection.fetch("SELECT id FROM orders"))


async def _enqueued(connection: Connection) -> Counter[int]:
    rows = await connection.fetch("SELECT convert_from(payload, 'UTF8')::json ->> 'order' FROM penstock.job_content")
    return Counter(int(row[0]) for row in rows)


@campaign
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
async def test_a_job_exists_exactly_if_its_row_does(
    nursery: Nursery, dsn: str, connection: Connection, tmp_path: Path, library: str, record_property: Any
) -> None:
    rounds, chance = trials(200), random.Random(f"kills of {library}")
    await connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
    with RunningServer(tmp_path, "--port", "0", "--store", dsn):
        for number in range(rounds):
            pid = nursery.start(f"order_by_{library}", dsn, number * STRIDE)
            await asyncio.sleep(chance.uniform(0, AFTER_S_MAX))
            os.kill(pid, signal.SIGKILL)
            assert nursery.wait() == -signal.SIGKILL
        async with asyncio.timeout(TAKEN_S_MAX):
            # A session whose client is gone may still be about to commit, so that comes first.
            while await connection.fetchval(UNDER_WAY) or await connection.fetchval(STAGED):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
    ordered, enqueued = await _ordered(connection), await _enqueued(connection)
    assert enqueued == ordered
    assert set(ordered.values()) == {1}
    record_property("evidence", f"{rounds} kills, {len(ordered)} orders, as many jobs, none without the other")


@campaign
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_nodes_that_are_killed_neither_lose_nor_double_a_job(
    nursery: Nursery,
    second_nursery: Nursery,
    open_engine: OpenEngine,
    dsn: str,
    connection: Connection,
    record_property: Any,
) -> None:
    rounds, chance = trials(60, share=15), random.Random("kills of nodes")
    healthy = await open_engine()
    queues = ["a", "b", "c"]
    staged = 0
    killed: Counter[str] = Counter()
    for number in range(rounds):
        async with connection.transaction():
            for order in range(10):
                for queue in queues:
                    await stage(connection, number * 10 + order, queue, group="g")
                    staged += 1
        nodes = [nursery, second_nursery]
        places = [PLACES[number % 3], chance.choice(PLACES)]
        for node, place in zip(nodes, places, strict=True):
            await asyncio.to_thread(node.start, "take", dsn, place, chance.randrange(4))
        for node, place in zip(nodes, places, strict=True):
            killed[place.rpartition(".")[2]] += await asyncio.to_thread(node.wait) == -signal.SIGKILL
        await _take_all(healthy, connection)
        for queue in queues:
            assert (await payloads(healthy, queue))[-10:] == list(range(number * 10, number * 10 + 10))
    for queue in queues:
        found = await connection.fetch(
            "SELECT convert_from(c.payload, 'UTF8') FROM penstock.job j JOIN penstock.job_content c USING (position) "
            "JOIN penstock.job_queue q ON q.id = j.queue_id WHERE q.name = $1 ORDER BY position",
            queue,
        )
        assert [int(row[0]) for row in found] == list(range(rounds * 10))
    assert killed.total() >= rounds
    record_property("evidence", f"{staged} jobs, kills by place {dict(killed)}: each enqueued once, groups in order")


async def _take_all(engine: Any, connection: Connection) -> None:
    async with asyncio.timeout(TAKEN_S_MAX):
        while await connection.fetchval(STAGED):
            await take(engine)
