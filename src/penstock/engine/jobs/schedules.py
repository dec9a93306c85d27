"""Schedules: save, find, list and delete them. The upkeep fires them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job_request import check_name, check_queue_name, check_range, make_draft
from penstock.domain.schedule import Schedule, check
from penstock.engine.jobs.pages import every_name, read_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits
    from penstock.domain.job_request import JobRequest
    from penstock.engine.jobs.queues import JobQueues
    from penstock.store.job_port import JobStore


class SchedulePage(msgspec.Struct, frozen=True):
    """Some schedules in the order of their names, and the name after which the rest follows, if there is a rest."""

    schedules: list[Schedule]
    after: str | None = None


class Schedules:
    """The use cases around schedules. `saved` is called when one may be due sooner than told."""

    def __init__(
        self,
        store: JobStore,
        queues: JobQueues,
        clock: Clock,
        ids: IdSource,
        limits: JobLimits,
        saved: Callable[[], None],
    ) -> None:
        self._store = store
        self._queues = queues
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._saved = saved

    async def save(
        self,
        name: str,
        queue: str,
        request: JobRequest,
        *,
        cron: str | None = None,
        zone: str = "UTC",
        interval_ms: int | None = None,
        paused: bool = False,
    ) -> Schedule:
        """Create a schedule, or replace the one of this name. Its queue is made if need be."""
        check_queue_name(name, self._limits)
        check_name("zone", zone, self._limits)
        # Its jobs have keys of neither kind: each time it fires is a job of its own.
        draft = make_draft(
            request, queue=queue, job_id=self._ids.new_id(), now_ms=self._clock.wall_ms(), limits=self._limits
        )
        schedule = Schedule(
            name=name, queue=queue, draft=draft, cron=cron, zone=zone, interval_ms=interval_ms, paused=paused
        )
        check(schedule)
        await self._queues.find_or_create(queue)
        saved = await self._store.save_schedule(schedule)
        self._saved()
        return saved

    async def find(self, name: str) -> Schedule:
        """Return a schedule or raise `ScheduleDoesNotExist`."""
        return await self._store.schedule(name)

    async def list_schedules(
        self, *, after: str = "", limit: int | None = None, sees: Callable[[str], bool] = every_name
    ) -> SchedulePage:
        """List schedules, a page at a time; those of queues whose names the caller `sees`."""
        limit = self._limits.list_page_max if limit is None else limit
        check_range("limit", limit, 1, self._limits.list_page_max)
        found = await read_page(
            lambda after, limit: self._store.schedules(after=after, limit=limit),
            lambda schedule: sees(schedule.queue),
            after,
            limit,
        )
        return SchedulePage(*found)

    async def delete(self, name: str) -> None:
        """Delete a schedule or raise `ScheduleDoesNotExist`."""
        await self._store.delete_schedule(name)
