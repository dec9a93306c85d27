"""The schema: made once however many nodes begin at once, and left alone if it is not ours to change."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.errors import StoreIncompatible, StoreUnavailable, StoreUrlInvalid
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import Limits
from penstock.domain.queue import QueueAttributes
from penstock.domain.worker import Worker, WorkerKind
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.migrations import BEGIN, scripts
from penstock.testing import ManualClock
from penstock.wire.jobs.staging import read_staged
from tests.support import old_jobs
from tests.support.job_steps import enqueue, offered_ids
from tests.support.job_steps import make_queue as make_job_queue
from tests.support.postgres import PostgresServer
from tests.support.queues import ACCOUNT, REGION, lease_bodies, make_queue, queue_name, send
from tests.unit.store.postgres.conftest import OpenNode


async def test_nodes_that_begin_at_once_make_one_schema(open_node: OpenNode) -> None:
    nodes = await asyncio.gather(*(open_node() for _ in range(6)))
    assert len({node.secret for node in nodes}) == 1
    assert len(nodes[0].secret) == 32
    queue = await make_queue(nodes[0])
    await send(nodes[1], queue, "a")
    assert await lease_bodies(nodes[2], queue) == ["a"]


async def test_a_node_that_comes_later_finds_all_as_it_was(open_node: OpenNode) -> None:
    first = await open_node()
    queue = await make_queue(first)
    second = await open_node()
    assert second.secret == first.secret
    assert await second.find_queue(queue.name) == queue


async def test_a_newer_schema_is_refused(open_node: OpenNode, postgres_server: PostgresServer, database: str) -> None:
    await open_node()
    newer = max(scripts()) + 1
    postgres_server.psql(f"INSERT INTO penstock.migration VALUES ({newer}, 'newer')", database)
    with pytest.raises(StoreIncompatible, match="newer"):
        await open_node()


async def test_a_schema_of_somebody_else_is_left_alone(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.psql("CREATE SCHEMA penstock; CREATE TABLE penstock.water (level int)", database)
    with pytest.raises(StoreIncompatible, match="not made by Penstock"):
        await open_node()
    assert postgres_server.psql("SELECT count(*) FROM penstock.water", database) == "0"


async def test_a_migration_that_fails_leaves_nothing_behind(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.psql(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
    with pytest.raises(StoreUnavailable):
        await open_node()
    postgres_server.psql(f'ALTER DATABASE "{database}" RESET default_transaction_read_only')
    assert postgres_server.psql("SELECT count(*) FROM pg_namespace WHERE nspname = 'penstock'", database) == "0"
    await open_node()


async def test_a_database_that_is_not_there_is_unavailable(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.drop_database(database)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await open_node()


async def test_an_address_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(StoreUrlInvalid):
        await PostgresStore.open(
            "postgresql://localhost:port/",
            clock=SystemClock(),
            ids=OrderedIds(),
            limits=Limits(),
            failpoints=Failpoints(),
        )


async def test_a_store_of_the_first_version_is_brought_up_to_date(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.psql(BEGIN, database)
    for number in (1, 7):
        postgres_server.psql(scripts()[number][1], database)
    postgres_server.psql(
        """
        INSERT INTO penstock.migration SELECT number, 'old' FROM generate_series(1, 7) AS number;
        INSERT INTO penstock.deduplication VALUES (1, '', 'id', 1, 1, 'of a queue that is gone')
        """,
        database,
    )
    first = await open_node()
    assert postgres_server.psql("SELECT count(*) FROM penstock.deduplication", database) == "0"
    queue = await make_queue(first, "q.fifo")
    await send(first, queue, "a", "a", group="g")
    assert await lease_bodies(await open_node(), queue) == ["a", "a"]


async def test_lanes_that_tenants_shared_are_split(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.psql(BEGIN, database)
    for number in (1, 7, 8):
        postgres_server.psql(scripts()[number][1], database)
    postgres_server.psql("INSERT INTO penstock.migration SELECT n, 'old' FROM generate_series(1, 8) AS n", database)
    postgres_server.psql(";".join(old_jobs.statements("penstock.", r"'\x{}'")), database)
    store = await open_node()
    await old_jobs.check_split(store)
    await old_jobs.check_gathers(store)
    breakers = "string_agg(concat(shared, tenant, key, failures), ',' ORDER BY shared, tenant)"
    assert postgres_server.psql(f"SELECT {breakers} FROM penstock.job_breaker", database) == "0ak3,0bk3,12"


async def test_jobs_of_an_older_store_may_be_enqueued_and_purged_again(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    write_jobs_before_repeats(postgres_server, database)
    postgres_server.psql(old_jobs.old_operation("penstock."), database)
    await old_jobs.check_repeats(await open_node())


async def test_what_waited_in_an_older_store_goes_by_its_age_and_priority(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    write_jobs_before_repeats(postgres_server, database)
    postgres_server.psql(";".join(old_jobs.waiting("penstock.", r"'\x{}'")), database)
    await old_jobs.check_waiting(await open_node())


async def test_what_a_node_of_an_older_version_enqueues_comes_after_what_is_there(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    """Such a node may run until it is stopped, and knows nothing of the order by age and priority."""
    jobs = (await open_node()).jobs
    queue = await make_job_queue(jobs)
    [there] = await enqueue(jobs, queue)
    columns = "id, tenant, queue_id, task, priority, state, ready, enqueued_at"
    insert = (
        f"INSERT INTO penstock.job ({columns}) VALUES ('old', '', {queue.id}, 'mail', 4, 2, 1, 0) RETURNING position"
    )
    position = postgres_server.psql(insert, database).splitlines()[0]
    postgres_server.psql(
        f"INSERT INTO penstock.job_content (position, payload, options) VALUES ({position}, '1', '\\x80')", database
    )
    assert await offered_ids(jobs, queue) == [there, "old"]


def write_jobs_before_repeats(postgres_server: PostgresServer, database: str) -> None:
    """Make a store with old jobs as it was before migration 13."""
    postgres_server.psql(BEGIN, database)
    for number in [number for number in scripts() if number < 13]:
        if number == 9:
            postgres_server.psql(";".join(old_jobs.statements("penstock.", r"'\x{}'")), database)
        postgres_server.psql(scripts()[number][1], database)
        postgres_server.psql(f"INSERT INTO penstock.migration VALUES ({number}, 'old')", database)


async def test_a_store_from_before_workers_were_listed_lists_them(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.psql(BEGIN, database)
    for number, (name, script) in scripts().items():
        if "workers" not in name:
            postgres_server.psql(script, database)
            postgres_server.psql(f"INSERT INTO penstock.migration VALUES ({number}, 'old')", database)
    one, other = await open_node(), await open_node()
    worker = Worker(
        id="1", name="w", kind=WorkerKind.STREAM, queues=("q",), credit=1, running=0, since_at_ms=0, seen_at_ms=0
    )
    await one.jobs.note_workers([worker], [], now_ms=0)
    assert [(found.name, found.queues) for found in await other.jobs.workers(limit=1)] == [("w", ("q",))]
    assert postgres_server.psql("SELECT max(number) FROM penstock.migration", database) == str(max(scripts()))


async def test_jobs_of_an_older_store_do_not_expire_and_new_ones_do(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    clock = ManualClock()
    postgres_server.psql(BEGIN, database)
    for number in [number for number in scripts() if number < 17]:
        postgres_server.psql(scripts()[number][1], database)
        postgres_server.psql(f"INSERT INTO penstock.migration VALUES ({number}, 'old')", database)
    postgres_server.psql(";".join(old_jobs.before_expiry("penstock.", r"'\x{}'", clock.now_ms())), database)
    await old_jobs.check_expiry(await open_node(clock=clock), clock)


async def test_messages_of_an_older_store_come_in_the_order_of_this_one(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    """What was received before comes first, and a FIFO group gives what is before its first message that is hidden."""
    older = [number for number in scripts() if number < 10]
    postgres_server.psql(BEGIN, database)
    for number in older:
        postgres_server.psql(scripts()[number][1], database)
        postgres_server.psql(f"INSERT INTO penstock.migration VALUES ({number}, 'old')", database)
    attributes = msgspec.json.encode(QueueAttributes()).decode()
    queues = ", ".join(
        f"('{REGION}', '{ACCOUNT}', '{name}', '{queue_name(name).arn}', {fifo}, {partition}, '{attributes}', "
        "'{}', 345600000, 0, 0)"
        for partition, (name, fifo) in enumerate((("orders", "false"), ("orders.fifo", "true")), start=1)
    )
    postgres_server.psql(
        f"""
        INSERT INTO penstock.queue (region, account, name, arn, fifo, partition, attributes, tags, retention_ms,
                                    created_at, modified_at) VALUES {queues};
        INSERT INTO penstock.message (partition, position, visible_at, sent_at, receipt, receive_count, leased_at)
        SELECT 1, n, t.now - v.ago, t.now - 5000, v.receipt, v.receipt, t.now - 4000
          FROM penstock.now_ms(NULL) t(now), (VALUES (1, 1, 1), (2, 3000, 0)) v(n, ago, receipt);
        INSERT INTO penstock.fifo_group (partition, name, ready_at, leased_to)
        SELECT 2, 'g', penstock.now_ms(NULL) + 600000, 4;
        INSERT INTO penstock.fifo_message (partition, position, group_id, visible_at, sent_at, receipt, leased_at)
        SELECT 2, v.n, g.id, t.now + v.later, t.now - 5000, 1, t.now - 4000
          FROM penstock.now_ms(NULL) t(now), penstock.fifo_group g, (VALUES (3, -1), (4, 600000), (5, -1)) v(n, later);
        INSERT INTO penstock.body (position, message_id, body, group_name)
        SELECT n, 'id' || n, 'm' || n, 'g' FROM generate_series(1, 5) n
        """,
        database,
    )
    node = await open_node(limits=Limits(in_flight_fifo_max=2))
    standard, fifo = [await node.find_queue(queue_name(name)) for name in ("orders", "orders.fifo")]
    assert await lease_bodies(node, standard, 1) == ["m1"]
    assert await lease_bodies(node, standard) == ["m2"]
    assert await lease_bodies(node, fifo) == ["m3"]
    # What is leased behind it counts.
    assert await lease_bodies(node, fifo) == []


async def test_a_store_from_before_staging_takes_jobs_of_transactions(
    open_node: OpenNode, postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.psql(BEGIN, database)
    for number in [number for number in scripts() if number < 18]:
        postgres_server.psql(scripts()[number][1], database)
        postgres_server.psql(f"INSERT INTO penstock.migration VALUES ({number}, 'old')", database)
    jobs = (await open_node()).jobs
    job_id = postgres_server.psql("SELECT penstock.enqueue_v1('mail', 'greet', '1')", database)
    await jobs.take_staged(read_staged)
    assert (await jobs.job(job_id.strip())).payload == b"1"
