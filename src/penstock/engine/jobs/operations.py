"""Operations: something done to many jobs of a queue, carried out by the upkeep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job_request import check_name, check_range
from penstock.domain.operation import JobFilter, Operation, OperationKind
from penstock.domain.repeats import operation_id_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits
    from penstock.engine.jobs.queues import JobQueues
    from penstock.store.job_port import DeadGroup, JobStore

RATE_MAX = 100_000
COUNTED_MAX = 100_000
"""How many jobs a dry run counts."""
GROUPS_MAX = 100


class Operations:
    """The use cases around operations. `started` is called when there is a new one to carry out."""

    def __init__(
        self, store: JobStore, queues: JobQueues, ids: IdSource, limits: JobLimits, started: Callable[[], None]
    ) -> None:
        self._store = store
        self._queues = queues
        self._ids = ids
        self._limits = limits
        self._started = started

    async def requeue_dead(
        self,
        queue: str,
        wanted: JobFilter,
        *,
        rate: int | None = None,
        limit: int | None = None,
        call: str | None = None,
    ) -> Operation:
        """Begin to queue dead jobs again, the oldest first. The same `call` again is the same operation."""
        return await self._start(OperationKind.REQUEUE, queue, wanted, rate, limit, call)

    async def purge(
        self, queue: str, wanted: JobFilter, *, rate: int | None = None, call: str | None = None
    ) -> Operation:
        """Begin to remove jobs that wait. The same `call` again is the same operation."""
        return await self._start(OperationKind.PURGE, queue, wanted, rate, None, call)

    async def count(self, queue: str, wanted: JobFilter) -> tuple[int, bool]:
        """Count the jobs that are meant, up to a bound, and tell whether there may be more."""
        self._check(wanted)
        await self._queues.find(queue)
        wanted = msgspec.structs.replace(wanted, queue=queue)
        matching, before = 0, None
        while matching < COUNTED_MAX:
            page = await self._store.jobs(wanted, before=before, limit=self._limits.list_page_max)
            if not page:
                return matching, False
            matching += len(page)
            before = page[-1].position
        return matching, True

    async def dead_groups(self, queue: str) -> list[DeadGroup]:
        """Group the dead jobs of a queue by task and failure, the largest groups first."""
        return await self._store.dead_groups(await self._queues.find(queue), limit=GROUPS_MAX)

    async def operation(self, operation_id: str) -> Operation:
        """Return an operation, with its progress, or raise `OperationDoesNotExist`."""
        return await self._store.operation(operation_id)

    async def operations(self, queue: str) -> list[Operation]:
        """Return the operations of a queue, the newest first."""
        found = await self._queues.find(queue)
        return await self._store.operations(found, limit=self._limits.operations_kept_per_queue_max)

    async def cancel(self, operation_id: str) -> Operation:
        """Stop an operation. What it has done stays done."""
        return await self._store.cancel_operation(operation_id)

    def _check(self, wanted: JobFilter) -> None:
        """Refuse texts that no job can have. The background could not even look for all of them."""
        for field in ("task", "tenant", "tag", "failure_kind"):
            text = getattr(wanted, field)
            if text:
                check_name(field, text, self._limits)

    async def _start(
        self,
        kind: OperationKind,
        queue: str,
        wanted: JobFilter,
        rate: int | None,
        limit: int | None,
        call: str | None,
    ) -> Operation:
        if rate is not None:
            check_range("rate", rate, 1, RATE_MAX)
        self._check(wanted)
        found = await self._queues.find(queue)
        wanted = msgspec.structs.replace(wanted, queue=queue)
        operation_id = self._ids.new_id() if call is None else operation_id_of(call)
        operation = await self._store.start_operation(operation_id, kind, found, wanted, rate, limit)
        self._started()
        return operation
