"""The steps of transactions that enqueue, as tests take them one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from penstock.domain.job import Job
from penstock.domain.operation import JobFilter
from penstock.engine.engine import Engine

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

QUEUE = "mail"


async def stage(connection: Connection, payload: object = None, queue: str = QUEUE, **options: Any) -> str:
    """Enqueue by SQL in whatever transaction is open, and return the job's id."""
    job_id: str = await connection.fetchval(
        "SELECT penstock.enqueue_v1($1, 'greet', $2, $3)", queue, json.dumps(payload), json.dumps(options)
    )
    return job_id


async def take(engine: Engine) -> None:
    """Take in all that can be, as a node does by itself."""
    while await engine.jobs.staging.step() == 0:
        pass


async def jobs_of(engine: Engine, queue: str = QUEUE) -> list[Job]:
    """Return the jobs of a queue, the first first; of one that is not there, none."""
    return (await engine.store.jobs.jobs(JobFilter(queues=(queue,)), limit=500))[::-1]


async def payloads(engine: Engine, queue: str = QUEUE) -> list[Any]:
    """Return the payloads of a queue's jobs, the first first."""
    return [json.loads(job.payload) for job in await jobs_of(engine, queue)]


async def left(connection: Connection) -> list[tuple[Any, ...]]:
    """Return what is staged: payload, why it was refused, and whether that is for good."""
    rows = await connection.fetch(
        "SELECT request::json ->> 'payload', problem, next_at IS NULL FROM penstock.staged_job ORDER BY position"
    )
    return [tuple(row) for row in rows]
