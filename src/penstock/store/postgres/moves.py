"""Message move tasks: begun, advanced step by step by any node, and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import msgspec

from penstock.domain.move import MoveFailure, MoveStatus, MoveTask
from penstock.domain.queue import QueueName
from penstock.store.postgres.queues import check_exists, no_queue
from penstock.store.postgres.sql import statements
from penstock.store.refusals import move_running, no_move

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.domain.ids import IdSource
    from penstock.domain.limits import Limits
    from penstock.domain.queue import Queue
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session
    from penstock.store.postgres.work import Work

TASKS_MAX = 1_000
"""How many running tasks one round of steps looks at."""

_SQL = statements("moves")
_decode_name = msgspec.json.Decoder(QueueName).decode


def _task_of(row: asyncpg.Record) -> MoveTask:
    return MoveTask(
        id=row["id"],
        source=_decode_name(row["source"]),
        destination=None if row["destination"] is None else _decode_name(row["destination"]),
        rate=row["rate"],
        status=MoveStatus(row["status"]),
        moved=row["moved"],
        to_move=row["to_move"],
        started_at_ms=row["started_at"],
        failure=None if row["failure"] is None else MoveFailure(row["failure"]),
    )


class Moves:
    """Carries out tasks."""

    def __init__(
        self, work: Work, *, clock: PinnedClock, ids: IdSource, limits: Limits, arrived: Callable[[int, int], None]
    ) -> None:
        self._work = work
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._arrived = arrived

    async def start(
        self,
        task_id: str,
        source: Queue,
        destination: Queue | None,
        rate: int | None,
        permitted: Collection[QueueName] | None,
    ) -> MoveTask:
        """Begin a task."""

        async def start(session: Session) -> MoveTask:
            await check_exists(session, source)
            if destination is not None:
                await check_exists(session, destination)
            if await session.fetchval(_SQL["running"], source.id) is not None:
                raise move_running()
            row = await session.fetchrow(
                _SQL["start"],
                self._clock.pinned_ms,
                task_id,
                source.id,
                None if destination is None else destination.id,
                msgspec.json.encode(source.name).decode(),
                None if destination is None else msgspec.json.encode(destination.name).decode(),
                rate,
                None if permitted is None else [name.arn for name in permitted],
            )
            if row is None:
                raise no_queue()
            return _task_of(row)

        try:
            return await self._work.write(start, MoveTask)
        except asyncpg.UniqueViolationError:
            # Another node began one at the same time.
            raise move_running() from None

    async def cancel(self, task_id: str) -> MoveTask:
        """Stop a task."""

        async def cancel(session: Session) -> MoveTask:
            row = await session.fetchrow(_SQL["cancel"], task_id)
            if row is None:
                raise no_move()
            return _task_of(row)

        return await self._work.write(cancel, MoveTask)

    async def tasks(self, source: Queue, limit: int) -> list[MoveTask]:
        """Return the tasks of a queue."""

        async def read(session: Session) -> list[asyncpg.Record]:
            await check_exists(session, source)
            return await session.fetch(_SQL["list"], source.id, limit)

        return [_task_of(row) for row in await self._work.read(read)]

    async def advance(self) -> int | None:
        """Do the steps that are due. After one that was committed unknown to us comes the next, if that is due."""
        for row in await self._running():
            if row["due_in"] == 0:
                await self._step(row["number"], row["rate"])
        due = [row["due_in"] for row in await self._running()]
        return min(due, default=None)

    async def _running(self) -> list[asyncpg.Record]:
        return await self._work.read(lambda session: session.fetch(_SQL["due"], self._clock.pinned_ms, TASKS_MAX))

    async def _step(self, number: int, rate: int | None) -> None:
        rows_max = self._limits.sweep_rows_max

        async def step(session: Session) -> list[asyncpg.Record]:
            # New ids on each attempt: one that was committed without our knowledge has used up its own.
            ids = [self._ids.new_id() for _ in range(rows_max if rate is None else min(rows_max, max(1, rate // 10)))]
            return await session.fetch(_SQL["advance"], self._clock.pinned_ms, number, rows_max, ids)

        for row in await self._work.read(step):
            self._arrived(row["queue_id"], row["arrived"])
