"""The same lifecycle through pgmq-style SQL (`pgmq.sql`): every operation of every caller is a call and a commit."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import json
import os
from typing import TYPE_CHECKING, Any, Self

import asyncpg

from benchmarks.errors import WorkFailed
from benchmarks.timing import Budget, Rate, measure
from benchmarks.workload import make_bodies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.workload import Workload

CONNECTIONS = 16
"""How many connections the callers share; more were slower."""

_LEASE_S = 3600


class PgmqQueue:
    """One such queue in a schema of its own, with the connections to it; gone after use."""

    def __init__(self, dsn: str, *, connections: int = CONNECTIONS) -> None:
        self._dsn = dsn
        self._size = connections
        self._schema = f"penstock_bench_{os.urandom(4).hex()}"
        self._connections: list[asyncpg.Connection[Any]] = []
        # Not asyncpg's pool: that runs a statement to reset each connection that is given back, and is not fair.
        self._free: list[asyncpg.Connection[Any]] = []
        self._turns = asyncio.Semaphore(connections)

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self._size):
                settings = {"search_path": self._schema, "application_name": "pgmq-style"}
                connection = await asyncpg.connect(self._dsn, server_settings=settings)
                self._connections.append(connection)
                self._free.append(connection)
            await self._connections[0].execute(f"CREATE SCHEMA {self._schema}")
            script = importlib.resources.files("benchmarks").joinpath("pgmq.sql").read_text()
            await self._connections[0].execute(script)
        except BaseException:
            await self._disconnect()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._connections[0].execute(f"DROP SCHEMA {self._schema} CASCADE")
        finally:
            await self._disconnect()

    async def send(self, bodies: list[str]) -> None:
        """Store messages, given as JSON texts."""
        async with self._connection() as connection:
            if len(bodies) == 1:
                await connection.fetchval("SELECT send($1::jsonb)", bodies[0])
            else:
                await connection.fetch("SELECT * FROM send_batch($1::jsonb[])", bodies)

    async def read(self, count: int) -> list[int]:
        """Lease messages and return their ids."""
        async with self._connection() as connection:
            return [row["msg_id"] for row in await connection.fetch("SELECT * FROM read($1, $2)", _LEASE_S, count)]

    async def delete(self, ids: list[int]) -> int:
        """Delete messages and say how many there were."""
        async with self._connection() as connection:
            if len(ids) == 1:
                return int(await connection.fetchval("SELECT delete($1::bigint)", ids[0]))
            return len(await connection.fetch("SELECT * FROM delete_batch($1::bigint[])", ids))

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        async with self._turns:
            connection = self._free.pop()
            try:
                yield connection
            finally:
                self._free.append(connection)

    async def _disconnect(self) -> None:
        for connection in self._connections:
            await connection.close()


class PgmqLoad:
    """The work that callers do on such a queue, as `QueueLoad` is on one of ours."""

    def __init__(self, queue: PgmqQueue, workload: Workload) -> None:
        self._queue = queue
        self._workload = workload
        self._bodies = [json.dumps({"body": body}) for body in make_bodies(workload.body_bytes)]

    async def fill(self, messages: int) -> None:
        """Put so many messages into the queue."""
        for _ in range(messages // 100):
            await self._queue.send(self._some_bodies(100))
        if messages % 100:
            await self._queue.send(self._some_bodies(messages % 100))

    async def lifecycle(self, budget: Budget) -> Rate:
        """Measure lifecycles: each caller sends a batch, reads as many, and deletes what it read."""
        workload = self._workload
        return await measure(self._cycle, callers=workload.callers, batch=workload.batch, budget=budget)

    async def _cycle(self, count: int) -> int:
        await self._queue.send(self._some_bodies(count))
        ids = await self._queue.read(count)
        if not ids:
            return 0
        if await self._queue.delete(ids) != len(ids):
            raise WorkFailed("a message that was read is gone")
        return len(ids)

    def _some_bodies(self, count: int) -> list[str]:
        return [self._bodies[number % len(self._bodies)] for number in range(count)]
