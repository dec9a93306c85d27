"""Routes of people who look after jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from penstock.domain.job import TERMINAL, EventFilter, JobState
from penstock.domain.job_errors import JobDoesNotExist, JobInvalid
from penstock.domain.operation import JobFilter
from penstock.engine.jobs.looking import EVENTS_PAGE
from penstock.server.jobs.call import Call, Parameter, Route, Streamed, answer_json, no_blank, seconds, whole_number
from penstock.server.jobs.streaming import SERVER_SENT_EVENTS, event_stream
from penstock.wire.http import Response
from penstock.wire.jobs import shapes
from penstock.wire.jobs.answers import STATES, EventsView, JobPage, JobView, ResultView, label
from penstock.wire.jobs.views import event_view, job_summary, job_view, result_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.domain.job import Job
    from penstock.engine.jobs.jobs import Jobs
    from penstock.engine.jobs.looking import Looking
    from penstock.wire.jobs.cursors import Cursors

PAGE = 50
KINDS_MAX = 50
_decode_intervention = msgspec.json.Decoder(shapes.Intervention)
_TEXT = {"type": "string", "maxLength": 200}
_NUMBER = {"type": "integer", "minimum": 0}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": 500}
FILTERS = (
    Parameter("state", "States, with commas between them.", {"type": "string"}),
    Parameter("queue", "Only jobs of this queue.", _TEXT),
    Parameter("task", "Only jobs of this task.", _TEXT),
    Parameter("tenant", "Only jobs of this tenant.", _TEXT),
    Parameter("tag", "Only jobs with this tag.", _TEXT),
    Parameter("failure_kind", "Only jobs whose last failure was of this kind.", _TEXT),
    Parameter("enqueued_from_ms", "Only jobs that were enqueued at this instant or later.", _NUMBER),
    Parameter("enqueued_before_ms", "Only jobs that were enqueued before this instant.", _NUMBER),
)
PAGING = (
    Parameter("limit", "How many at most.", _LIMIT),
    Parameter("cursor", "Where an earlier page ended.", {"type": "string"}),
)


class JobLists:
    """Lists of jobs, a page at a time, of those jobs that the caller sees."""

    def __init__(self, jobs: Jobs, cursors: Cursors) -> None:
        self._looking = jobs.looking
        self._queues = jobs.queues
        self._cursors = cursors

    async def wanted(self, call: Call) -> JobFilter:
        """Read which jobs are meant."""
        query = call.query()
        tenant = no_blank(query, "tenant")
        queue = no_blank(query, "queue")
        if queue is not None:
            call.caller.need_queue(queue)
        if call.caller.tenant is not None:
            tenant = call.caller.tenant_for(tenant or "")
        return JobFilter(
            queue=queue,
            queues=None if call.caller.queues is None else await self._queues.names(call.caller.sees_queue),
            states=read_states(query),
            task=no_blank(query, "task"),
            tenant=tenant,
            tag=no_blank(query, "tag"),
            failure_kind=no_blank(query, "failure_kind"),
            enqueued_from_ms=whole_number(query, "enqueued_from_ms", 0) or None,
            enqueued_before_ms=whole_number(query, "enqueued_before_ms", 0) if "enqueued_before_ms" in query else None,
        )

    async def page(self, call: Call, wanted: JobFilter) -> Response:
        """Show a page of these jobs."""
        query = call.query()
        before = self._cursors.decode(query["cursor"]) if query.get("cursor") else None
        page = await self._looking.jobs(wanted, before=before, limit=whole_number(query, "limit", PAGE))
        cursor = None if page.before is None else self._cursors.encode(page.before)
        return answer_json(JobPage(jobs=[job_summary(job) for job in page.jobs], cursor=cursor))


class LookRoutes:
    """Jobs, their results and events; cancel and retry."""

    def __init__(self, jobs: Jobs, cursors: Cursors) -> None:
        self._lists = JobLists(jobs, cursors)
        self._looking = jobs.looking

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(
                method="GET",
                path="/v1/jobs",
                name="ListJobs",
                summary="List jobs, the newest first.",
                handler=self._list,
                answers={200: JobPage},
                parameters=(*FILTERS, *PAGING),
            ),
            Route(
                method="GET",
                path="/v1/jobs/{id}",
                name="GetJob",
                summary="Show a job with its attempts.",
                handler=self._get,
                answers={200: JobView},
            ),
            Route(
                method="GET",
                path="/v1/jobs/{id}/result",
                name="GetResult",
                summary="Wait for a job to finish, and show what it came to. 202 if it has not finished.",
                handler=self._result,
                answers={200: ResultView, 202: ResultView},
                parameters=(
                    Parameter("wait", "For how many seconds.", {"type": "number", "minimum": 0, "maximum": 60}),
                ),
            ),
            Route(
                method="POST",
                path="/v1/jobs/{id}/cancel",
                name="CancelJob",
                summary="Cancel a job; one that runs is asked to stop.",
                handler=self._cancel,
                body=shapes.Intervention,
                answers={200: JobView},
            ),
            Route(
                method="POST",
                path="/v1/jobs/{id}/retry",
                name="RetryJob",
                summary="Queue a dead, cancelled or waiting job again, now.",
                handler=self._retry,
                body=shapes.Intervention,
                answers={200: JobView},
            ),
            Route(
                method="GET",
                path="/v1/jobs/{id}/events",
                name="FollowEvents",
                summary="Follow a job's events, as server-sent events, until it is finished; or read a page of them.",
                handler=self._events,
                answers={200: EventsView, 204: None},
                streamed=SERVER_SENT_EVENTS,
                parameters=(
                    Parameter("Last-Event-ID", "Where to go on.", {"type": "string"}, "header"),
                    Parameter("after", "The same, where headers cannot be set.", _NUMBER),
                    Parameter("follow", "`false` asks for a page, as JSON.", {"type": "boolean", "default": True}),
                    Parameter("limit", "How many at most, on a page.", {**_LIMIT, "default": EVENTS_PAGE}),
                    Parameter("kind", "Only events of these kinds, with commas between them.", {"type": "string"}),
                    Parameter("from_ms", "Only events of this instant or later.", _NUMBER),
                    Parameter("before_ms", "Only events before this instant.", _NUMBER),
                ),
            ),
        ]

    async def _list(self, call: Call) -> Response:
        return await self._lists.page(call, await self._lists.wanted(call))

    async def _get(self, call: Call) -> Response:
        return answer_json(job_view(await self._visible(call)))

    async def _result(self, call: Call) -> Response:
        wait_ms = seconds(call.query(), "wait")
        await self._visible(call)
        job = await self._looking.result(call.path["id"], wait_ms=wait_ms)
        return answer_json(result_view(job), status=200 if job.state in TERMINAL else 202)

    async def _cancel(self, call: Call) -> Response:
        request_id = call.body(_decode_intervention).request_id
        job = await self._visible(call)
        job = await self._looking.cancel(job.id, call=call.key(request_id, "cancel", job.id))
        return answer_json(job_view(job))

    async def _retry(self, call: Call) -> Response:
        request_id = call.body(_decode_intervention).request_id
        job = await self._visible(call)
        job = await self._looking.retry(job.id, call=call.key(request_id, "retry", job.id))
        return answer_json(job_view(job))

    async def _events(self, call: Call) -> Response | Streamed:
        query = call.query()
        last = call.request.headers.get("last-event-id")
        after = whole_number({"Last-Event-ID": last}, "Last-Event-ID", 0) if last else whole_number(query, "after", 0)
        wanted = _wanted_events(query)
        follow = _boolean(query, "follow", default=True)
        if follow and "limit" in query:
            raise JobInvalid("A limit is for a page, with follow=false.", "limit")
        job = await self._visible(call)
        if not follow:
            limit = whole_number(query, "limit", EVENTS_PAGE)
            page = await self._looking.events(job.id, after=after, limit=limit, wanted=wanted)
            events = [event_view(event) for event in page.events]
            state = label(page.state)
            return answer_json(EventsView(events=events, after=page.after, complete=page.complete, state=state))
        if after > 0 and job.state in TERMINAL:
            rest = await self._looking.events(job.id, after=after, wanted=wanted)
            if rest.complete and not rest.events:
                # Browsers open the stream again when it ends, unless they are told that there is nothing more.
                return Response(status=204)
        return Streamed(
            content_type=SERVER_SENT_EVENTS,
            chunks=event_stream(self._looking, job.id, after, wanted),
            closed=lambda: None,
        )

    async def _visible(self, call: Call) -> Job:
        return await visible_job(self._looking, call, read_id(call))


async def visible_job(looking: Looking, call: Call, job_id: str) -> Job:
    """Find a job; one that the caller must not see is not there."""
    job = await looking.job(job_id)
    if not call.caller.sees(job.tenant) or not call.caller.sees_queue(job.queue):
        raise JobDoesNotExist(job_id)
    return job


def read_id(call: Call) -> str:
    """Read the id of a job in a path; what cannot be one is not found."""
    text = call.path["id"]
    try:
        known = str(UUID(text))
    except ValueError:
        known = ""
    if known != text:
        raise JobDoesNotExist(text)
    return text


def read_states(query: Mapping[str, str]) -> tuple[JobState, ...]:
    """Read states, with commas between them."""
    names = [name for name in query.get("state", "").split(",") if name]
    for name in names:
        if name not in STATES:
            raise JobInvalid(f"state is none of {', '.join(STATES)}.", "state")
    return tuple(dict.fromkeys(STATES[name] for name in names))


def _wanted_events(query: Mapping[str, str]) -> EventFilter:
    kinds = tuple(dict.fromkeys(kind for kind in (no_blank(query, "kind") or "").split(",") if kind))
    if len(kinds) > KINDS_MAX:
        raise JobInvalid(f"kind names at most {KINDS_MAX} kinds.", "kind")
    return EventFilter(
        kinds=kinds,
        from_ms=whole_number(query, "from_ms", 0) or None,
        before_ms=whole_number(query, "before_ms", 0) if "before_ms" in query else None,
    )


def _boolean(query: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = query.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise JobInvalid(f"{name} is true or false.", name)
    return text == "true"
