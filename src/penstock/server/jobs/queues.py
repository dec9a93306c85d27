"""Routes of operators about queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job_errors import JobQueueDoesNotExist
from penstock.engine.jobs.queues import depth
from penstock.server.jobs.call import Call, Parameter, Route, answer_json, no_blank, whole_number
from penstock.wire.http import Response
from penstock.wire.jobs import shapes
from penstock.wire.jobs.answers import QueuePage, QueueView
from penstock.wire.jobs.views import queue_view

if TYPE_CHECKING:
    from penstock.domain.job_queue import JobQueue
    from penstock.engine.jobs.jobs import Jobs

PAGE = 50
PAGE_OF_NAMES = (
    Parameter("after", "The name that an earlier page ended with.", {"type": "string"}),
    Parameter("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 500}),
)
_decode_new = msgspec.json.Decoder(shapes.NewQueue)
_decode_change = msgspec.json.Decoder(shapes.QueueChange)
_decode_patch = msgspec.json.Decoder(shapes.QueuePatch)


class QueueRoutes:
    """Queues: create, list, show, change, pause, resume, delete."""

    def __init__(self, jobs: Jobs) -> None:
        self._queues = jobs.queues

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(
                method="POST",
                path="/v1/queues",
                name="CreateQueue",
                summary="Create a queue. 200 if it exists with these settings.",
                handler=self._create,
                body=shapes.NewQueue,
                answers={201: QueueView, 200: QueueView},
            ),
            Route(
                method="GET",
                path="/v1/queues",
                name="ListQueues",
                summary="List queues by name.",
                handler=self._list,
                answers={200: QueuePage},
                parameters=PAGE_OF_NAMES,
            ),
            Route(
                method="GET",
                path="/v1/queues/{name}",
                name="GetQueue",
                summary="Show a queue's settings, and how many jobs it has in each state.",
                handler=self._get,
                answers={200: QueueView},
            ),
            Route(
                method="PUT",
                path="/v1/queues/{name}",
                name="PutQueue",
                summary="Create a queue, or replace all its settings.",
                handler=self._put,
                body=shapes.QueueChange,
                answers={200: QueueView, 201: QueueView},
            ),
            Route(
                method="PATCH",
                path="/v1/queues/{name}",
                name="ChangeQueue",
                summary="Change those settings of a queue that are given.",
                handler=self._change,
                body=shapes.QueuePatch,
                answers={200: QueueView},
            ),
            Route(
                method="DELETE",
                path="/v1/queues/{name}",
                name="DeleteQueue",
                summary="Delete a queue that has no jobs.",
                handler=self._delete,
                answers={204: None},
            ),
            Route(
                method="POST",
                path="/v1/queues/{name}/pause",
                name="PauseQueue",
                summary="Offer nothing until the queue is resumed. What runs goes on.",
                handler=self._pause,
                answers={200: QueueView},
            ),
            Route(
                method="POST",
                path="/v1/queues/{name}/resume",
                name="ResumeQueue",
                summary="Offer again.",
                handler=self._resume,
                answers={200: QueueView},
            ),
        ]

    async def _create(self, call: Call) -> Response:
        new = call.body(_decode_new)
        call.caller.need_queue(new.name)
        queue, created = await self._queues.create(new.name, new.settings.over)
        return await self._shown(queue, status=201 if created else 200)

    async def _list(self, call: Call) -> Response:
        query = call.query()
        page = await self._queues.list_queues(
            after=no_blank(query, "after") or "",
            limit=whole_number(query, "limit", PAGE),
            sees=call.caller.sees_queue,
        )
        queues: list[QueueView] = []
        for queue in page.queues:
            try:
                queues.append(await self._view(queue))
            except JobQueueDoesNotExist:
                continue  # It was deleted since the page was read.
        return answer_json(QueuePage(queues=queues, after=page.after))

    async def _get(self, call: Call) -> Response:
        return await self._shown(await self._queues.find(call.path["name"]))

    async def _put(self, call: Call) -> Response:
        change = call.body(_decode_change)
        queue, created = await self._queues.put(call.path["name"], change.settings.over, change.revision)
        return await self._shown(queue, status=201 if created else 200)

    async def _change(self, call: Call) -> Response:
        change, name = call.body(_decode_patch), call.path["name"]
        key = call.key(change.request_id, "change", name, str(change.revision))
        queue = await self._queues.change(name, change.settings.over, change.revision, call=key)
        return await self._shown(queue)

    async def _delete(self, call: Call) -> Response:
        await self._queues.delete(call.path["name"])
        return Response(status=204)

    async def _pause(self, call: Call) -> Response:
        return await self._shown(await self._queues.pause(call.path["name"]))

    async def _resume(self, call: Call) -> Response:
        return await self._shown(await self._queues.resume(call.path["name"]))

    async def _shown(self, queue: JobQueue, status: int = 200) -> Response:
        return answer_json(await self._view(queue), status=status)

    async def _view(self, queue: JobQueue) -> QueueView:
        counts = await self._queues.counts(queue)
        return queue_view(queue, counts, depth(counts))
