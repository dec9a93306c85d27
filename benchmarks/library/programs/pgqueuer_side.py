"""PgQueuer on PostgreSQL.

Without a limit it takes batches of 100, its best. With 20 slots it allows batches of 10 at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries

from benchmarks.library.programs.tasks import ASYNC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pgqueuer.models import Job

    from benchmarks.library.programs.side import Call, Place

_BATCH = 100
_CONNECTIONS = 20


class _Producer:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def enqueue(self, call: Call) -> None:
        await self._queries.enqueue(call[0], _payload(call))

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        await self._queries.enqueue([call[0] for call in calls], [_payload(call) for call in calls], [0] * len(calls))


def _payload(call: Call) -> bytes:
    return b"%d %d" % call[1:]


async def open_producer(place: Place) -> _Producer:
    queries = Queries(AsyncpgPoolDriver(await _pool(place)))
    with contextlib.suppress(asyncpg.DuplicateObjectError, asyncpg.DuplicateTableError):  # An earlier producer did it.
        await queries.install()
    return _Producer(queries)


def work(place: Place, ready: Callable[[], None]) -> None:
    asyncio.run(_work(place, ready))


async def _work(place: Place, ready: Callable[[], None]) -> None:
    worker = PgQueuer(AsyncpgPoolDriver(await _pool(place)))
    for name, function in ASYNC.items():
        worker.entrypoint(name)(_entry(function))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown.set)
    ready()
    batch = place.slots // 2 if place.slots else _BATCH
    await worker.run(batch_size=batch, max_concurrent_tasks=place.slots or None)


def _entry(function: Callable[[int, int], Awaitable[None]]) -> Callable[[Job], Awaitable[None]]:
    async def run(job: Job) -> None:
        number, argument = (job.payload or b"").split()
        await function(int(number), int(argument))

    return run


async def _pool(place: Place) -> asyncpg.Pool[asyncpg.Record]:
    pool = await asyncpg.create_pool(place.address, min_size=2, max_size=_CONNECTIONS)
    assert pool is not None
    return pool
