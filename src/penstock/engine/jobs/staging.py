"""Staging: jobs that users' own transactions have asked for are taken in once those have been committed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from penstock.domain.job_errors import JobDoesNotExist

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.store.job_port import JobStore, ReadStaged, StagedCounts, Taken

LOOK_S = 0.01
LOOKS_MAX = 200
"""How soon, and how many times, who asks for a job looks again while another node is busy with its queue."""

Answer = TypeVar("Answer")


class Staging:
    """Takes in staged jobs. `expect` is called with the time, in ms, after which jobs come due or expire.

    Without `read`, which makes requests of their texts, they are left to other nodes.
    """

    def __init__(
        self, store: JobStore, read: ReadStaged | None = None, expect: Callable[[int], None] | None = None
    ) -> None:
        self._store = store
        self._read = read
        self._expect = expect

    @property
    def active(self) -> bool:
        """Whether there can be staged jobs that this engine has to take in."""
        return self._read is not None and self._store.stages

    async def step(self) -> int | None:
        """Take in a bounded number of jobs, and say in how many ms there may be more; None: when told so."""
        return (await self._take()).next_in_ms

    async def counts(self) -> StagedCounts | None:
        """Count what is staged; None where nothing can be."""
        return await self._store.count_staged() if self._store.stages else None

    async def found(self, job_id: str, look: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return what `look` finds out about a job. One that is committed and still staged is taken in first."""
        try:
            return await look()
        except JobDoesNotExist:
            if not self.active or not await self._take_in(job_id):
                raise
        return await look()

    async def _take_in(self, job_id: str) -> bool:
        """Take in jobs of the queue of one until that is not staged any more; return whether to look for it again."""
        refused = False
        for _ in range(LOOKS_MAX):
            queue = await self._store.staged_queue(job_id)
            if queue is None:
                # It never was, or it was taken in: by us, or by another node that was quicker.
                return True
            if refused:
                return False
            taken = await self._take(queue)
            if taken.busy:
                await asyncio.sleep(LOOK_S)
            else:
                refused = taken.next_in_ms != 0
        return False

    async def _take(self, queue: str | None = None) -> Taken:
        assert self._read is not None, "nothing is taken where nothing can be read"
        taken = await self._store.take_staged(self._read, queue=queue)
        if taken.due_in_ms is not None and self._expect is not None:
            self._expect(taken.due_in_ms)
        return taken
