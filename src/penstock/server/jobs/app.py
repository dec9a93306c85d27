"""The job API put together: its routes on an engine, and the application that serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.server.jobs.endpoint import Endpoint
from penstock.server.jobs.enqueueing import EnqueueRoutes
from penstock.server.jobs.gathers import GatherRoutes
from penstock.server.jobs.looking import LookRoutes
from penstock.server.jobs.observer import Observer
from penstock.server.jobs.operations import OperationRoutes
from penstock.server.jobs.queues import QueueRoutes
from penstock.server.jobs.schedules import ScheduleRoutes
from penstock.server.jobs.serving import Exchange, write
from penstock.server.jobs.workers import WorkerRoutes
from penstock.server.jobs.working import WorkRoutes
from penstock.wire.jobs.cursors import Cursors
from penstock.wire.jobs.tokens import LeaseTokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.engine.engine import Engine
    from penstock.server.jobs.access import Access
    from penstock.server.jobs.call import Route
    from penstock.server.jobs.counters import JobCounters
    from penstock.server.jobs.tracing import Tracing

_OWN = ("/v1/", "/docs", "/openapi.json", "/enqueue", "/dlq")


def job_endpoint(
    engine: Engine,
    *,
    access: Access | None = None,
    counters: JobCounters | None = None,
    tracing: Tracing | None = None,
    more: Iterable[Route] = (),
) -> Endpoint:
    """Make the endpoint with all routes on an engine, and `more` of this server's own."""
    jobs, secret, ids = engine.jobs, engine.secret, engine.ids
    observer = Observer(jobs.looking, counters, tracing)
    cursors = Cursors(secret)
    return Endpoint(
        [
            *EnqueueRoutes(jobs, observer).routes(),
            *WorkRoutes(jobs, LeaseTokens(secret), ids, observer).routes(),
            *GatherRoutes(jobs, observer).routes(),
            *LookRoutes(jobs, cursors).routes(),
            *QueueRoutes(jobs).routes(),
            *OperationRoutes(jobs, cursors).routes(),
            *ScheduleRoutes(jobs).routes(),
            *WorkerRoutes(jobs).routes(),
            *more,
        ],
        access=access,
        ids=ids,
        counters=observer.counters.requests,
    )


class JobApp:
    """An ASGI application that reads requests for the endpoint, and writes its answers."""

    def __init__(self, endpoint: Endpoint, *, body_bytes_max: int) -> None:
        self._endpoint = endpoint
        self._body_bytes_max = body_bytes_max

    @staticmethod
    def takes(path: str) -> bool:
        """Return whether a path is of this API."""
        return path.startswith(_OWN)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own types
        method, path = scope["method"], scope["path"]
        found = self._endpoint.find(method, path)
        if found is None:
            await write(self._endpoint.respond_elsewhere(method, path), send)
        else:
            await Exchange(self._endpoint, *found, self._body_bytes_max)(scope, receive, send)
