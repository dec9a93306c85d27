"""Routes of operators about many jobs at once: dead letters, purges, and how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import WAITING, JobState
from penstock.domain.job_errors import JobInvalid, OperationDoesNotExist
from penstock.domain.job_request import check_range
from penstock.domain.operation import JobFilter
from penstock.server.jobs.call import Call, Parameter, Route, answer_json, whole_number
from penstock.server.jobs.looking import (
    FILTERS,
    PAGING,
    JobLists,
    read_id,
    visible_job,
)
from penstock.wire.jobs import shapes
from penstock.wire.jobs.answers import DeadGroups, DeadGroupView, DryRun, JobPage, JobView, Operations, OperationView
from penstock.wire.jobs.views import job_view, operation_view

if TYPE_CHECKING:
    from penstock.domain.operation import Operation
    from penstock.engine.jobs.jobs import Jobs
    from penstock.wire.http import Response
    from penstock.wire.jobs.cursors import Cursors

_decode_selection = msgspec.json.Decoder(shapes.Selection)
_decode_requeue = msgspec.json.Decoder(shapes.LooseRequeue)
_WAITING = tuple(sorted(WAITING))
_LIMIT = Parameter(
    "limit",
    "How many dead jobs of the queue at most, as in the body.",
    {"type": "integer", "minimum": 1, "maximum": shapes.COUNT_MAX},
)


class OperationRoutes:
    """Dead letters are listed, grouped and queued again; waiting jobs are purged; operations are followed."""

    def __init__(self, jobs: Jobs, cursors: Cursors) -> None:
        self._lists = JobLists(jobs, cursors)
        self._queues = jobs.queues
        self._looking = jobs.looking
        self._operations = jobs.operations

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(
                method="POST",
                path="/v1/queues/{name}/purge",
                name="PurgeQueue",
                summary="Remove the jobs that wait, as an operation.",
                handler=self._purge,
                body=shapes.Selection,
                answers={202: OperationView, 200: DryRun},
            ),
            Route(
                method="GET",
                path="/v1/queues/{name}/dead",
                name="ListDead",
                summary="List the dead jobs of a queue, the newest first.",
                handler=self._dead,
                answers={200: JobPage},
                parameters=(*FILTERS, *PAGING),
            ),
            Route(
                method="GET",
                path="/v1/queues/{name}/dead/groups",
                name="GroupDead",
                summary="Group the dead jobs of a queue by task and kind of failure.",
                handler=self._groups,
                answers={200: DeadGroups},
            ),
            Route(
                method="POST",
                path="/v1/queues/{name}/dead/requeue",
                name="RequeueDead",
                summary="Queue dead jobs again, as an operation; with `dry_run`, count them.",
                handler=self._requeue,
                body=shapes.Selection,
                answers={202: OperationView, 200: DryRun},
            ),
            Route(
                method="GET",
                path="/v1/queues/{name}/operations",
                name="ListOperations",
                summary="List the operations of a queue, the newest first.",
                handler=self._list,
                answers={200: Operations},
            ),
            Route(
                method="GET",
                path="/v1/operations/{id}",
                name="GetOperation",
                summary="Show an operation and how far it is.",
                handler=self._get,
                answers={200: OperationView},
            ),
            Route(
                method="POST",
                path="/v1/operations/{id}/cancel",
                name="CancelOperation",
                summary="Stop an operation. What it has done stays done.",
                handler=self._cancel,
                answers={200: OperationView},
            ),
            Route(
                method="GET",
                path="/dlq",
                name="ListAllDead",
                summary="List dead jobs of all queues, the newest first.",
                handler=self._all_dead,
                answers={200: JobPage},
                parameters=(*FILTERS, *PAGING),
            ),
            Route(
                method="POST",
                path="/dlq/requeue",
                name="RequeueLoosely",
                summary="Queue one dead job again, or those of a queue, the oldest first.",
                handler=self._requeue_loosely,
                body=shapes.LooseRequeue,
                answers={202: OperationView, 200: JobView},
                parameters=(_LIMIT,),
            ),
        ]

    async def _purge(self, call: Call) -> Response:
        selection = call.body(_decode_selection)
        wanted = _filter(selection, _WAITING)
        if selection.dry_run:
            return await self._counted(call.path["name"], wanted)
        key = _key(call, "purge", selection)
        operation = await self._operations.purge(call.path["name"], wanted, rate=selection.rate, call=key)
        return answer_json(operation_view(operation), status=202)

    async def _requeue(self, call: Call) -> Response:
        selection = call.body(_decode_selection)
        wanted = _filter(selection, (JobState.DEAD,))
        if selection.dry_run:
            return await self._counted(call.path["name"], wanted)
        key = _key(call, "requeue", selection)
        operation = await self._operations.requeue_dead(call.path["name"], wanted, rate=selection.rate, call=key)
        return answer_json(operation_view(operation), status=202)

    async def _counted(self, queue: str, wanted: JobFilter) -> Response:
        matching, more = await self._operations.count(queue, wanted)
        return answer_json(DryRun(dry_run=True, matching=matching, more=more))

    async def _dead(self, call: Call) -> Response:
        queue = await self._queues.find(call.path["name"])
        return await self._page_of_dead(call, queue.name)

    async def _all_dead(self, call: Call) -> Response:
        return await self._page_of_dead(call, None)

    async def _page_of_dead(self, call: Call, queue: str | None) -> Response:
        wanted = await self._lists.wanted(call)
        wanted = msgspec.structs.replace(wanted, states=(JobState.DEAD,), queue=queue or wanted.queue)
        return await self._lists.page(call, wanted)

    async def _groups(self, call: Call) -> Response:
        groups = await self._operations.dead_groups(call.path["name"])
        return answer_json(
            DeadGroups(
                groups=[
                    DeadGroupView(
                        task=group.task,
                        kind=group.kind,
                        count=group.count,
                        last_at_ms=group.last_at_ms,
                        example_id=group.example_id,
                    )
                    for group in groups
                ]
            )
        )

    async def _list(self, call: Call) -> Response:
        operations = await self._operations.operations(call.path["name"])
        return answer_json(Operations(operations=[operation_view(operation) for operation in operations]))

    async def _get(self, call: Call) -> Response:
        return answer_json(operation_view(await self._visible(call)))

    async def _visible(self, call: Call) -> Operation:
        operation = await self._operations.operation(call.path["id"])
        if not call.caller.sees_queue(operation.queue):
            raise OperationDoesNotExist(operation.id)
        return operation

    async def _cancel(self, call: Call) -> Response:
        await self._visible(call)
        return answer_json(operation_view(await self._operations.cancel(call.path["id"])))

    async def _requeue_loosely(self, call: Call) -> Response:
        wanted = call.body(_decode_requeue)
        limit = _read_limit(call, wanted)
        if wanted.id is not None:
            job_id = read_id(msgspec.structs.replace(call, path={"id": wanted.id}))
            await visible_job(self._looking, call, job_id)
            key = call.key(wanted.request_id, "retry", job_id)
            return answer_json(job_view(await self._looking.retry(job_id, call=key)))
        call.caller.need_queue(wanted.queue)
        dead = JobFilter(states=(JobState.DEAD,))
        key = call.key(wanted.request_id, "requeue", wanted.queue, str(limit))
        operation = await self._operations.requeue_dead(wanted.queue, dead, limit=limit, call=key)
        return answer_json(operation_view(operation), status=202)


def _key(call: Call, verb: str, selection: shapes.Selection) -> str | None:
    """Return what identifies an operation: with another selection it is another one."""
    return call.key(selection.request_id, verb, call.path["name"], msgspec.json.encode(selection).decode())


def _read_limit(call: Call, wanted: shapes.LooseRequeue) -> int | None:
    """Read how many jobs at most, which may stand in the query, in the body, or in both."""
    query = call.query()
    limit = wanted.limit
    if "limit" in query:
        limit = whole_number(query, "limit", 0)
        check_range("limit", limit, 1, shapes.COUNT_MAX)
        if wanted.limit not in {None, limit}:
            raise JobInvalid("The limits in the query and in the body differ.", "limit")
    if limit is not None and wanted.id is not None:
        raise JobInvalid("A limit is for the jobs of a queue, and an id for one job.", "limit")
    return limit


def _filter(selection: shapes.Selection, states: tuple[JobState, ...]) -> JobFilter:
    return JobFilter(
        states=states,
        task=selection.task,
        tenant=selection.tenant,
        tag=selection.tag,
        failure_kind=selection.failure_kind,
        enqueued_from_ms=selection.enqueued_from_ms,
        enqueued_before_ms=selection.enqueued_before_ms,
    )
