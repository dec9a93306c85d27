"""Routes of operators about schedules."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import AccessDenied
from penstock.domain.job_errors import ScheduleDoesNotExist
from penstock.server.jobs.call import Call, Route, answer_json, no_blank, whole_number
from penstock.server.jobs.queues import PAGE, PAGE_OF_NAMES
from penstock.wire.http import Response
from penstock.wire.jobs import shapes
from penstock.wire.jobs.answers import SchedulePage, ScheduleView
from penstock.wire.jobs.views import schedule_view

if TYPE_CHECKING:
    from penstock.domain.schedule import Schedule
    from penstock.engine.jobs.jobs import Jobs

_decode_new = msgspec.json.Decoder(shapes.NewSchedule)
_decode_change = msgspec.json.Decoder(shapes.ScheduleChange)


class ScheduleRoutes:
    """Schedules: save, list, show, delete."""

    def __init__(self, jobs: Jobs) -> None:
        self._schedules = jobs.schedules

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(
                method="POST",
                path="/v1/schedules",
                name="SaveSchedule",
                summary="Create a schedule, or replace the one of its name.",
                handler=self._save,
                body=shapes.NewSchedule,
                answers={200: ScheduleView},
            ),
            Route(
                method="GET",
                path="/v1/schedules",
                name="ListSchedules",
                summary="List schedules by name.",
                handler=self._list,
                answers={200: SchedulePage},
                parameters=PAGE_OF_NAMES,
            ),
            Route(
                method="GET",
                path="/v1/schedules/{name}",
                name="GetSchedule",
                summary="Show a schedule, when it fires next, and what it enqueued last.",
                handler=self._get,
                answers={200: ScheduleView},
            ),
            Route(
                method="PUT",
                path="/v1/schedules/{name}",
                name="PutSchedule",
                summary="Create or replace a schedule.",
                handler=self._put,
                body=shapes.ScheduleChange,
                answers={200: ScheduleView},
            ),
            Route(
                method="DELETE",
                path="/v1/schedules/{name}",
                name="DeleteSchedule",
                summary="Delete a schedule.",
                handler=self._delete,
                answers={204: None},
            ),
        ]

    async def _save(self, call: Call) -> Response:
        new = call.body(_decode_new)
        return await self._saved(call, new.name, new)

    async def _put(self, call: Call) -> Response:
        return await self._saved(call, call.path["name"], call.body(_decode_change))

    async def _saved(self, call: Call, name: str, given: shapes.ScheduleChange) -> Response:
        call.caller.need_queue(given.queue)
        # Nor is a schedule of a queue that they do not see theirs to replace, or to learn the queue of.
        with contextlib.suppress(ScheduleDoesNotExist):
            if not call.caller.sees_queue((await self._schedules.find(name)).queue):
                raise AccessDenied(f"The token is not for the schedule {name!r}.")
        request = shapes.job_request(given.job)
        request = msgspec.structs.replace(request, tenant=call.caller.tenant_for(request.tenant))
        schedule = await self._schedules.save(
            name,
            given.queue,
            request,
            cron=given.cron,
            zone=given.zone,
            interval_ms=given.interval_ms,
            paused=given.paused,
        )
        return answer_json(schedule_view(schedule))

    async def _list(self, call: Call) -> Response:
        query = call.query()
        page = await self._schedules.list_schedules(
            after=no_blank(query, "after") or "",
            limit=whole_number(query, "limit", PAGE),
            sees=call.caller.sees_queue,
        )
        return answer_json(
            SchedulePage(schedules=[schedule_view(schedule) for schedule in page.schedules], after=page.after)
        )

    async def _get(self, call: Call) -> Response:
        return answer_json(schedule_view(await self._visible(call)))

    async def _visible(self, call: Call) -> Schedule:
        schedule = await self._schedules.find(call.path["name"])
        if not call.caller.sees_queue(schedule.queue):
            raise ScheduleDoesNotExist(schedule.name)
        return schedule

    async def _delete(self, call: Call) -> Response:
        await self._visible(call)
        await self._schedules.delete(call.path["name"])
        return Response(status=204)
