"""Peeks: messages shown as they lie, without receiving them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.message import MessageState, Peeked
from penstock.store.port import Peek
from penstock.store.postgres.leases import message_of
from penstock.store.postgres.queues import no_queue

if TYPE_CHECKING:
    from penstock.domain.limits import Limits
    from penstock.domain.queue import Queue
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session
    from penstock.store.postgres.work import Work

_PEEK = "SELECT * FROM penstock.peek($1, $2, $3, $4, $5, $6, $7, $8)"


class Peeks:
    """Shows messages."""

    def __init__(self, work: Work, clock: PinnedClock, limits: Limits) -> None:
        self._work = work
        self._clock = clock
        self._limits = limits

    async def peek(self, queue: Queue, state: MessageState | None, after: int, limit: int) -> Peek:
        """Show messages; `after` is the position of the last one that was looked at."""

        async def read(session: Session) -> Peek:
            *rows, told = await session.fetch(
                _PEEK,
                self._clock.pinned_ms,
                queue.id,
                queue.retention_ms,
                state,
                after,
                limit,
                self._limits.peek_rows_max,
                self._limits.peek_bytes_max,
            )
            if told["missing"]:
                raise no_queue()
            messages = [
                Peeked(
                    message=message_of(row, fifo=queue.fifo),
                    state=MessageState(row["state"]),
                    visible_at_ms=row["visible_at"],
                )
                for row in rows
            ]
            return Peek(messages, told["reached"])

        return await self._work.read(read)
