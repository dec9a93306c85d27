"""Routes about gathers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from penstock.domain.job_errors import GatherDoesNotExist
from penstock.engine.jobs.gathers import GatherJob, GatherRequest
from penstock.server.jobs.call import Call, Parameter, Route, answer_json, read_entry, seconds, whole_number
from penstock.server.jobs.enqueueing import batch_entry
from penstock.wire.jobs import gathers as wire
from penstock.wire.jobs.answers import BatchEntry, Problem
from penstock.wire.jobs.shapes import NewJob, job_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.domain.gather import Gather
    from penstock.engine.jobs.gathers import Gathered
    from penstock.engine.jobs.jobs import Jobs
    from penstock.server.jobs.observer import Observer
    from penstock.wire.http import Response

PAGE = 100
_decode_new = msgspec.json.Decoder(wire.NewGatherTexts)
_decode_more = msgspec.json.Decoder(wire.MoreMemberTexts)
_decode_job = msgspec.json.Decoder(NewJob)


class GatherRoutes:
    """Gathers are opened, filled, looked at and cancelled."""

    def __init__(self, jobs: Jobs, observer: Observer) -> None:
        self._gathers = jobs.gathers
        self._observer = observer

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(
                method="POST",
                path="/v1/gathers",
                name="OpenGather",
                summary="Enqueue jobs and, once they have ended, another one. 200 if the gather is there already.",
                handler=self._open,
                body=wire.NewGather,
                answers={201: wire.GatherAnswer, 200: wire.GatherAnswer},
            ),
            Route(
                method="POST",
                path="/v1/gathers/{id}/jobs",
                name="FillGather",
                summary="Add jobs to a gather, each judged by itself, and seal it.",
                handler=self._fill,
                body=wire.MoreMembers,
                answers={200: wire.GatherAnswer},
            ),
            Route(
                method="POST",
                path="/v1/gathers/{id}/cancel",
                name="CancelGather",
                summary="Let the continuation of a gather, and what follows it, never run. Its members go on.",
                handler=self._cancel,
                answers={200: wire.GatherView},
            ),
            Route(
                method="GET",
                path="/v1/gathers/{id}",
                name="GetGather",
                summary="Show a gather and how far it is; with `wait`, once it has ended or the wait is over.",
                handler=self._get,
                answers={200: wire.GatherView},
                parameters=(
                    Parameter("wait", "For how many seconds.", {"type": "number", "minimum": 0, "maximum": 60}),
                ),
            ),
            Route(
                method="GET",
                path="/v1/gathers/{id}/results",
                name="GetGatherResults",
                summary="Show what the members of a gather came to, in the order of their indexes.",
                handler=self._results,
                answers={200: wire.MemberResults},
                parameters=(
                    Parameter("after", "The index that an earlier page ended with.", {"type": "integer", "minimum": 0}),
                    Parameter("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 500}),
                ),
            ),
        ]

    async def _open(self, call: Call) -> Response:
        new = call.body(_decode_new)
        filling = _Filling(call, 0, new.jobs)
        links = new.then.links()
        filling.need_queues(*links)
        with self._observer.sending(call, filling.queue, len(filling.jobs)) as sending:
            asked = GatherRequest(
                id=new.id,
                then=tuple(filling.asked_for(link, sending.trace) for link in links),
                on_error=wire.POLICIES[new.on_error],
                expires_in_ms=new.expires_in_ms,
            )
            members = filling.members(sending.trace)
            gathered = await self._gathers.open(asked, members, seal=new.seal and filling.whole)
            for index, outcome in gathered.outcomes.items():
                sending.became(outcome, members[index].request.correlation_id)
        headers = [("location", f"/v1/gathers/{gathered.gather.id}")]
        return answer_json(filling.answer(gathered), *headers, status=201 if gathered.created else 200)

    async def _fill(self, call: Call) -> Response:
        gather = await self._visible(call)
        more = call.body(_decode_more)
        filling = _Filling(call, more.first, more.jobs)
        filling.need_queues()
        with self._observer.sending(call, filling.queue, len(filling.jobs)) as sending:
            members = filling.members(sending.trace)
            gathered = await self._gathers.fill(gather, members, seal=more.seal and filling.whole)
            for index, outcome in gathered.outcomes.items():
                sending.became(outcome, members[index].request.correlation_id)
        return answer_json(filling.answer(gathered))

    async def _cancel(self, call: Call) -> Response:
        gather = await self._visible(call)
        return answer_json(wire.gather_view(await self._gathers.cancel(gather.id)))

    async def _get(self, call: Call) -> Response:
        wait_ms = seconds(call.query(), "wait")
        gather = await self._visible(call)
        return answer_json(
            wire.gather_view(await self._gathers.wait(gather.id, wait_ms=wait_ms) if wait_ms else gather)
        )

    async def _results(self, call: Call) -> Response:
        gather = await self._visible(call)
        query = call.query()
        page = await self._gathers.results(
            gather.id, after=whole_number(query, "after", -1), limit=whole_number(query, "limit", PAGE)
        )
        # Of a queue that they do not see, they are not shown what came of its jobs.
        shown = [one for one in page.results if one.queue is None or call.caller.sees_queue(one.queue)]
        return answer_json(wire.MemberResults(results=[wire.member_view(one) for one in shown], after=page.after))

    async def _visible(self, call: Call) -> Gather:
        """Find a gather; one that the caller must not see is not there."""
        gather = await self._gathers.find(_read_id(call))
        if not call.caller.sees(gather.tenant) or not call.caller.sees_queue(gather.queue):
            raise GatherDoesNotExist(gather.id)
        return gather


class _Filling:
    """The jobs of one request by their indexes: those that can be read, and what is wrong with the others."""

    def __init__(self, call: Call, first: int, texts: list[msgspec.Raw]) -> None:
        self._call = call
        self._indexes = range(first, first + len(texts))
        self.jobs: dict[int, NewJob] = {}
        self._problems: dict[int, BatchEntry] = {}
        for place, text in enumerate(texts):
            job = read_entry(_decode_job, text, f"jobs[{place}]")
            if isinstance(job, Problem):
                self._problems[first + place] = BatchEntry(status=job.status, problem=job)
            else:
                self.jobs[first + place] = job

    @property
    def whole(self) -> bool:
        """Whether all jobs can be read."""
        return not self._problems

    @property
    def queue(self) -> str:
        """The queue of all jobs, or nothing if there are several."""
        queues = {job.queue for job in self.jobs.values()}
        return queues.pop() if len(queues) == 1 else ""

    def need_queues(self, *others: NewJob) -> None:
        """Raise `AccessDenied` unless the caller may use all queues."""
        for queue in {job.queue for job in (*self.jobs.values(), *others)}:
            self._call.caller.need_queue(queue)

    def asked_for(self, job: NewJob, trace: str | None) -> GatherJob:
        """Make a job a request of its tenant."""
        request = job_request(job, trace=trace, correlation_id=self._call.correlation_id)
        tenant = self._call.caller.tenant_for(request.tenant)
        return GatherJob(job.queue, msgspec.structs.replace(request, tenant=tenant), job.id)

    def members(self, trace: str | None) -> Mapping[int, GatherJob]:
        """Make all jobs requests."""
        return {index: self.asked_for(job, trace) for index, job in self.jobs.items()}

    def answer(self, gathered: Gathered) -> wire.GatherAnswer:
        """Answer for all jobs, in order."""
        entries = self._problems | {index: batch_entry(outcome) for index, outcome in gathered.outcomes.items()}
        return wire.GatherAnswer(
            gather=wire.gather_view(gathered.gather),
            results=[entries[index] for index in self._indexes],
            links=[wire.link_view(link) for link in gathered.links] or msgspec.UNSET,
        )


def _read_id(call: Call) -> str:
    """Read the id of a gather in a path; what cannot be one is not found."""
    text = call.path["id"]
    try:
        known = str(UUID(text))
    except ValueError:
        known = ""
    if known != text:
        raise GatherDoesNotExist(text)
    return text
