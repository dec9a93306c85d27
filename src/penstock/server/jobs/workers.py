"""The route that lists workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.jobs.call import Call, Parameter, Route, answer_json, no_blank, whole_number
from penstock.wire.jobs.answers import WorkerPage, WorkerView

if TYPE_CHECKING:
    from penstock.domain.worker import Worker
    from penstock.engine.jobs.jobs import Jobs
    from penstock.server.jobs.access import Caller
    from penstock.wire.http import Response

PAGE = 50


class WorkerRoutes:
    """Who is connected, to any server of this store."""

    def __init__(self, jobs: Jobs) -> None:
        self._workers = jobs.workers

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(
                method="GET",
                path="/v1/workers",
                name="ListWorkers",
                summary="List workers by name: open streams and recent polls, of all servers.",
                handler=self._list,
                answers={200: WorkerPage},
                parameters=(
                    Parameter("queue", "Only workers of this queue.", {"type": "string", "maxLength": 200}),
                    Parameter("after", "Where an earlier page ended.", {"type": "string"}),
                    Parameter("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 500}),
                ),
            )
        ]

    async def _list(self, call: Call) -> Response:
        query = call.query()
        queue = no_blank(query, "queue")
        if queue is not None:
            call.caller.need_queue(queue)
        page = await self._workers.page(
            after=no_blank(query, "after") or "",
            limit=whole_number(query, "limit", PAGE),
            queue=queue,
            sees_queue=call.caller.sees_queue,
        )
        views = [_view(worker, call.caller) for worker in page.workers]
        return answer_json(WorkerPage(workers=views, after=page.after))


def _view(worker: Worker, caller: Caller) -> WorkerView:
    """Show a worker, but for queues that the caller must not see."""
    return WorkerView(
        name=worker.name,
        kind=worker.kind.value,
        queues=tuple(filter(caller.sees_queue, worker.queues)),
        tasks=worker.tasks,
        credit=worker.credit,
        running=worker.running,
        since_ms=worker.since_at_ms,
        seen_at_ms=worker.seen_at_ms,
    )
