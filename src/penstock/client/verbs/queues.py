"""Queues: make, change, pause, purge, and what became of their dead jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from penstock.client.calls import Call
from penstock.client.errors import QueueNotFound
from penstock.client.reading import body, new_id, query, read_nothing, reader, segment
from penstock.wire.jobs.answers import DeadGroups, DryRun, OperationView, QueuePage, QueueView

if TYPE_CHECKING:
    from penstock.client.requests import JobFilter, QueueSettings
    from penstock.client.verbs.caller import Caller

_read_queue = reader(QueueView)
_read_page = reader(QueuePage)
_read_groups = reader(DeadGroups)
_read_operation = reader(OperationView)
_read_dry_run = reader(DryRun)


class Queues:
    """Queues, by name."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def create(self, name: str, *, timeout: float | None = None, **settings: Unpack[QueueSettings]) -> QueueView:
        """Make a queue, or find it if it exists with these settings; raises `QueueExists` if it has others."""
        call = Call("POST", "/v1/queues", _read_queue, body({"name": name, "settings": settings}))
        return await self._caller.perform(call, timeout)

    async def put(self, name: str, *, timeout: float | None = None, **settings: Unpack[QueueSettings]) -> QueueView:
        """Make a queue, or give it these settings and the defaults for all others."""
        call = Call("PUT", f"/v1/queues/{segment(name)}", _read_queue, body({"settings": settings}))
        return await self._caller.perform(call, timeout)

    async def change(
        self,
        name: str,
        *,
        revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        **settings: Unpack[QueueSettings],
    ) -> QueueView:
        """Change these settings; with a `revision`, only if nobody has changed the queue since, or `QueueChanged`."""
        repeat = (request_id or new_id()) if revision is not None else None
        given = body({"settings": settings, "revision": revision, "request_id": repeat})
        return await self._caller.perform(Call("PATCH", f"/v1/queues/{segment(name)}", _read_queue, given), timeout)

    async def get(self, name: str, *, timeout: float | None = None) -> QueueView:
        """Return a queue with its counts; raises `QueueNotFound`."""
        return await self._caller.perform(Call("GET", f"/v1/queues/{segment(name)}", _read_queue), timeout)

    async def list(
        self, *, after: str | None = None, limit: int | None = None, timeout: float | None = None
    ) -> QueuePage:
        """Return a page of queues in the order of their names."""
        asked = query({"after": after, "limit": limit})
        return await self._caller.perform(Call("GET", f"/v1/queues{asked}", _read_page), timeout)

    async def delete(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a queue; raises `QueueNotFound`, unless a try whose answer was lost has deleted it."""
        path = f"/v1/queues/{segment(name)}"
        call = Call("DELETE", path, read_nothing, done_on_repeat=(QueueNotFound,))
        await self._caller.perform(call, timeout)

    async def pause(self, name: str, *, timeout: float | None = None) -> QueueView:
        """Offer nothing of this queue until it is resumed."""
        return await self._caller.perform(Call("POST", f"/v1/queues/{segment(name)}/pause", _read_queue), timeout)

    async def resume(self, name: str, *, timeout: float | None = None) -> QueueView:
        """Offer jobs of this queue again."""
        return await self._caller.perform(Call("POST", f"/v1/queues/{segment(name)}/resume", _read_queue), timeout)

    async def purge(
        self,
        name: str,
        *,
        rate: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        **only: Unpack[JobFilter],
    ) -> OperationView:
        """Begin to remove the jobs that wait; the operation says how far it is."""
        given = body({**only, "rate": rate, "request_id": request_id or new_id()})
        call = Call("POST", f"/v1/queues/{segment(name)}/purge", _read_operation, given)
        return await self._caller.perform(call, timeout)

    async def count_purge(self, name: str, *, timeout: float | None = None, **only: Unpack[JobFilter]) -> DryRun:
        """Count the jobs that a purge would remove."""
        return await self._count(f"/v1/queues/{segment(name)}/purge", only, timeout)

    async def requeue_dead(
        self,
        name: str,
        *,
        rate: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        **only: Unpack[JobFilter],
    ) -> OperationView:
        """Begin to queue dead jobs again; the operation says how far it is."""
        given = body({**only, "rate": rate, "request_id": request_id or new_id()})
        call = Call("POST", f"/v1/queues/{segment(name)}/dead/requeue", _read_operation, given)
        return await self._caller.perform(call, timeout)

    async def count_dead(self, name: str, *, timeout: float | None = None, **only: Unpack[JobFilter]) -> DryRun:
        """Count the dead jobs that would be queued again."""
        return await self._count(f"/v1/queues/{segment(name)}/dead/requeue", only, timeout)

    async def dead_groups(self, name: str, *, timeout: float | None = None) -> DeadGroups:
        """Group the dead jobs of a queue by task and kind of failure."""
        return await self._caller.perform(Call("GET", f"/v1/queues/{segment(name)}/dead/groups", _read_groups), timeout)

    async def _count(self, path: str, only: JobFilter, timeout: float | None) -> DryRun:
        call = Call("POST", path, _read_dry_run, body({**only, "dry_run": True}))
        return await self._caller.perform(call, timeout)
