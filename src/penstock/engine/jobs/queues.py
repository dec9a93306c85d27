"""Job queues: create, find, list, change, pause, resume, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import StoreUnavailable
from penstock.domain.job import WAITING
from penstock.domain.job_errors import JobQueueChanged, JobQueueDoesNotExist, JobQueueExists
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.domain.job_request import check_name, check_queue_name, check_range
from penstock.engine.jobs.pages import every_name, read_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.job_limits import JobLimits
    from penstock.domain.job_queue import JobCounts
    from penstock.engine.waiters import Waiters
    from penstock.store.job_port import JobStore

SAVES_MAX = 100
"""How often a change is tried. It fails only where another one was quicker."""

_DEFAULTS = JobQueueSettings()


class JobQueuePage(msgspec.Struct, frozen=True):
    """Some queues in the order of their names, and the name after which the rest follows, if there is a rest."""

    queues: list[JobQueue]
    after: str | None = None


class JobQueues:
    """The use cases around job queues as a whole."""

    def __init__(self, store: JobStore, waiters: Waiters, limits: JobLimits) -> None:
        self._store = store
        self._waiters = waiters
        self._limits = limits

    async def find(self, name: str) -> JobQueue:
        """Return a queue or raise `JobQueueDoesNotExist`."""
        check_queue_name(name, self._limits)
        return await self._store.find_queue(name)

    async def find_or_create(self, name: str) -> JobQueue:
        """Return a queue; one that is used for the first time is made with the default settings."""
        try:
            return await self.find(name)
        except JobQueueDoesNotExist:
            queue, _ = await self._store.create_queue(name, _DEFAULTS)
            return queue

    async def create(self, name: str, change: Callable[[JobQueueSettings], JobQueueSettings]) -> tuple[JobQueue, bool]:
        """Create a queue with the default settings as `change` makes them, and tell whether it is new.

        One that exists with these settings is returned as it is; else it is `JobQueueExists`.
        """
        check_queue_name(name, self._limits)
        settings = self._checked(change(_DEFAULTS))
        queue, created = await self._store.create_queue(name, settings)
        if not created and queue.settings != settings:
            raise JobQueueExists(f"There is a queue {name!r} with other settings.")
        return queue, created

    async def put(
        self, name: str, change: Callable[[JobQueueSettings], JobQueueSettings], revision: int | None = None
    ) -> tuple[JobQueue, bool]:
        """Create a queue, or replace all settings of the one that there is; tell whether it is new."""
        check_queue_name(name, self._limits)
        settings = self._checked(change(_DEFAULTS))
        if revision is None:
            queue, created = await self._store.create_queue(name, settings)
            if created or queue.settings == settings:
                return queue, created
        return await self._save(name, lambda _: settings, revision=revision), False

    async def change(
        self,
        name: str,
        change: Callable[[JobQueueSettings], JobQueueSettings],
        revision: int | None = None,
        *,
        call: str | None = None,
    ) -> JobQueue:
        """Replace settings by what `change` makes of them; with a `revision`, only if nobody else did since.

        The same `call` again changes nothing and returns the queue as it is.
        """
        return await self._save(name, change, revision=revision, call=call)

    async def pause(self, name: str) -> JobQueue:
        """Offer nothing of a queue until it is resumed. What runs goes on."""
        return await self._save(name, paused=True)

    async def resume(self, name: str) -> JobQueue:
        """Offer again."""
        queue = await self._save(name, paused=False)
        self._waiters.wake_all(queue.id)
        return queue

    async def delete(self, name: str) -> None:
        """Delete a queue without jobs. Whoever waits on it learns that it is gone."""
        queue = await self.find(name)
        await self._store.delete_queue(queue)
        self._waiters.wake_all(queue.id)

    async def list_queues(
        self, *, after: str = "", limit: int | None = None, sees: Callable[[str], bool] = every_name
    ) -> JobQueuePage:
        """List queues, a page at a time; those whose names the caller `sees`."""
        limit = self._limits.list_page_max if limit is None else limit
        check_range("limit", limit, 1, self._limits.list_page_max)
        found = await read_page(
            lambda after, limit: self._store.list_queues(after=after, limit=limit),
            lambda queue: sees(queue.name),
            after,
            limit,
        )
        return JobQueuePage(*found)

    async def names(self, sees: Callable[[str], bool]) -> tuple[str, ...]:
        """List the names of all queues that the caller `sees`."""
        names: list[str] = []
        after: str | None = ""
        while after is not None:
            page = await self.list_queues(after=after, sees=sees)
            names += [queue.name for queue in page.queues]
            after = page.after
        return tuple(names)

    async def counts(self, queue: JobQueue) -> JobCounts:
        """Count the jobs of a queue by state."""
        return await self._store.counts(queue)

    def _checked(self, settings: JobQueueSettings) -> JobQueueSettings:
        for key in settings.lanes:
            check_name("settings.lanes", key, self._limits)
        return settings

    async def _save(
        self,
        name: str,
        change: Callable[[JobQueueSettings], JobQueueSettings] | None = None,
        *,
        paused: bool | None = None,
        revision: int | None = None,
        call: str | None = None,
    ) -> JobQueue:
        for _ in range(SAVES_MAX):
            queue = await self.find(name)
            if revision is not None:
                # What is cached here may be behind; the store decides.
                queue = msgspec.structs.replace(queue, revision=revision)
            settings = None if change is None else self._checked(change(queue.settings))
            saved = await self._store.save_queue(queue, settings=settings, paused=paused, call=call)
            if saved is not None:
                return saved
            if revision is not None:
                raise JobQueueChanged(f"The queue {name!r} has another revision than {revision} by now.")
        raise StoreUnavailable(f"Others changed the queue {name!r} every time that it was to be changed here.")


def depth(counts: JobCounts) -> int:
    """How many jobs wait, which is what a queue's bound is about."""
    return sum(counts.by_state.get(state, 0) for state in WAITING)
