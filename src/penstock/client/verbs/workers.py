"""The list of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.calls import Call
from penstock.client.reading import query, reader
from penstock.wire.jobs.answers import WorkerPage

if TYPE_CHECKING:
    from penstock.client.verbs.caller import Caller

_read_page = reader(WorkerPage)


class Workers:
    """Workers that have a stream open, or have polled lately."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def list(
        self,
        *,
        queue: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> WorkerPage:
        """Return a page of workers, of one queue or of all."""
        asked = query({"queue": queue, "after": after, "limit": limit})
        return await self._caller.perform(Call("GET", f"/v1/workers{asked}", _read_page), timeout)
