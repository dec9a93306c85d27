"""Schedules: save, look, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from penstock.client.calls import Call
from penstock.client.errors import ScheduleNotFound
from penstock.client.reading import body, query, read_nothing, reader, segment
from penstock.wire.jobs.answers import SchedulePage, ScheduleView

if TYPE_CHECKING:
    from penstock.client.requests import ScheduledJob
    from penstock.client.verbs.caller import Caller

_read_schedule = reader(ScheduleView)
_read_page = reader(SchedulePage)


class Schedules:
    """Schedules, by name."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def put(  # noqa: PLR0913 - each is a part of the schedule
        self,
        name: str,
        queue: str,
        task: str,
        payload: Any = None,  # noqa: ANN401 - any JSON
        *,
        cron: str | None = None,
        zone: str | None = None,
        interval_ms: int | None = None,
        paused: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[ScheduledJob],
    ) -> ScheduleView:
        """Make or replace a schedule, by a cron expression in a time zone, or by an interval."""
        given = {
            "queue": queue,
            "job": {"task": task, "payload": payload, **options},
            "cron": cron,
            "zone": zone,
            "interval_ms": interval_ms,
            "paused": paused,
        }
        call = Call("PUT", f"/v1/schedules/{segment(name)}", _read_schedule, body(given))
        return await self._caller.perform(call, timeout)

    async def get(self, name: str, *, timeout: float | None = None) -> ScheduleView:
        """Return a schedule, when it fires next, and what it enqueued last; raises `ScheduleNotFound`."""
        return await self._caller.perform(Call("GET", f"/v1/schedules/{segment(name)}", _read_schedule), timeout)

    async def list(
        self, *, after: str | None = None, limit: int | None = None, timeout: float | None = None
    ) -> SchedulePage:
        """Return a page of schedules in the order of their names."""
        asked = query({"after": after, "limit": limit})
        return await self._caller.perform(Call("GET", f"/v1/schedules{asked}", _read_page), timeout)

    async def delete(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a schedule; raises `ScheduleNotFound`, unless a try whose answer was lost has deleted it."""
        path = f"/v1/schedules/{segment(name)}"
        call = Call("DELETE", path, read_nothing, done_on_repeat=(ScheduleNotFound,))
        await self._caller.perform(call, timeout)
