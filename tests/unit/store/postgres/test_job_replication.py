"""Jobs and synchronous replication: what is acknowledged is replicated, and a strict queue does not take less."""

from __future__ import annotations

import asyncio

from penstock.domain.job import JobState
from penstock.store.job_port import Complete, Enqueued, Reported
from penstock.store.port import Store
from tests.support.job_steps import draft, enqueue, enqueue_one, key_of, make_queue, start
from tests.support.postgres import PostgresServer
from tests.support.standby import Standby
from tests.unit.store.postgres.conftest import OpenNode


async def test_a_job_is_acknowledged_only_once_it_is_replicated(store: Store, standby: Standby) -> None:
    queue = await make_queue(store.jobs)
    await standby.goes_away()
    enqueued = asyncio.create_task(enqueue_one(store.jobs, queue))
    await standby.is_waited_for()
    await standby.is_given_up()
    # It has been committed here, and the server said so; yet the store waits again.
    await standby.is_waited_for()
    assert not enqueued.done()
    await standby.comes_back()
    answer = await enqueued
    assert isinstance(answer, Enqueued)
    assert (await store.jobs.counts(queue)).by_state[JobState.QUEUED] == 1


async def test_a_strict_queue_waits_for_the_standby_though_the_database_does_not(
    open_node: OpenNode, standby: Standby, postgres_server: PostgresServer, database: str
) -> None:
    postgres_server.psql(f"ALTER DATABASE {database} SET synchronous_commit = local")
    jobs = (await open_node()).jobs
    plain = await make_queue(jobs, "plain")
    strict = await make_queue(jobs, "strict", strict=True)
    await enqueue(jobs, strict, draft(idempotency_key=key_of("first")))
    lease = await start(jobs, strict)
    await standby.goes_away()
    await enqueue(jobs, plain)
    enqueued = asyncio.create_task(enqueue_one(jobs, strict, draft(idempotency_key=key_of("second"))))
    await standby.is_waited_for()
    assert not enqueued.done()
    await standby.comes_back()
    assert isinstance(await enqueued, Enqueued)
    await standby.goes_away()
    completed = asyncio.create_task(jobs.report([Complete(lease)]))
    await standby.is_waited_for()
    assert not completed.done()
    await standby.comes_back()
    [answer] = await completed
    assert isinstance(answer, Reported)
