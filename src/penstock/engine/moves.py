"""Message move tasks: start, list and cancel them. The upkeep carries them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.domain.ids import IdSource
    from penstock.domain.limits import Limits
    from penstock.domain.move import MoveTask
    from penstock.domain.queue import QueueName
    from penstock.store.port import Store


class Moves:
    """The use cases around move tasks. `started` is called when there is a new one to carry out."""

    def __init__(self, store: Store, ids: IdSource, limits: Limits, started: Callable[[], None]) -> None:
        self._store = store
        self._ids = ids
        self._limits = limits
        self._started = started

    async def start(
        self,
        source: QueueName,
        *,
        destination: QueueName | None = None,
        rate: int | None = None,
        permitted: Collection[QueueName] | None = None,
    ) -> MoveTask:
        """Begin to move the messages of a dead-letter queue to `destination`, or back to where each came from.

        They go back only to queues that are `permitted`, unless that is None.
        """
        if rate is not None and not 1 <= rate <= self._limits.move_rate_max:
            raise InvalidParameter(
                f"Value {rate} for parameter MaxNumberOfMessagesPerSecond is invalid. "
                f"Reason: must be between 1 and {self._limits.move_rate_max}."
            )
        source_queue = await self._store.find_queue(source)
        if not await self._store.dead_letter_sources(source, limit=1):
            raise InvalidParameter("Source queue must be configured as a Dead Letter Queue.")
        own = source_queue.attributes.redrive
        if source in (destination, own and destination is None and own.dead_letter_queue):
            # It would never come to an end.
            raise InvalidParameter("Source queue arn and destination queue arn cannot be the same.")
        destination_queue = None if destination is None else await self._store.find_queue(destination)
        if destination_queue is not None and destination_queue.fifo != source_queue.fifo:
            raise InvalidParameter("Source queue type and destination queue type must match.")
        task = await self._store.start_move(
            self._ids.new_id(), source_queue, destination_queue, rate, permitted=permitted
        )
        self._started()
        return task

    async def cancel(self, task_id: str) -> MoveTask:
        """Stop a running task. What it has moved stays moved."""
        return await self._store.cancel_move(task_id)

    async def list_tasks(self, source: QueueName, *, limit: int = 1) -> list[MoveTask]:
        """Return the tasks of a queue, newest first."""
        if not 1 <= limit <= self._limits.moves_listed_max:
            raise InvalidParameter(
                f"Value {limit} for parameter MaxResults is invalid. "
                f"Reason: must be between 1 and {self._limits.moves_listed_max}."
            )
        return await self._store.list_moves(await self._store.find_queue(source), limit=limit)
