"""The job API put together: its routes on an engine, and the application that serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request as FrameworkRequest  # noqa: TC002 - FastAPI reads annotations at run time
from starlette.responses import Response as FrameworkResponse

from penstock import __version__
from penstock.server.jobs.document import SECURITY_SCHEMES, Schemas, operation
from penstock.server.jobs.endpoint import Endpoint
from penstock.server.jobs.enqueueing import EnqueueRoutes
from penstock.server.jobs.looking import LookRoutes
from penstock.server.jobs.observer import Observer
from penstock.server.jobs.operations import OperationRoutes
from penstock.server.jobs.permissions import PERMISSIONS
from penstock.server.jobs.queues import QueueRoutes
from penstock.server.jobs.reference import CONTENT_TYPE, POLICY, reference_page
from penstock.server.jobs.schedules import ScheduleRoutes
from penstock.server.jobs.serving import Exchange
from penstock.server.jobs.working import WorkRoutes
from penstock.wire.jobs.cursors import Cursors
from penstock.wire.jobs.problems import NOT_ALLOWED, NOT_FOUND, make_problem, problem_response
from penstock.wire.jobs.tokens import LeaseTokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from penstock.engine.engine import Engine
    from penstock.server.jobs.access import Access
    from penstock.server.jobs.call import Route
    from penstock.server.jobs.counters import JobCounters
    from penstock.server.jobs.tracing import Tracing

TITLE = "Penstock jobs"
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
            *LookRoutes(jobs, cursors).routes(),
            *QueueRoutes(jobs).routes(),
            *OperationRoutes(jobs, cursors).routes(),
            *ScheduleRoutes(jobs).routes(),
            *more,
        ],
        access=access,
        ids=ids,
        counters=observer.counters.requests,
    )


class JobApp:
    """An ASGI application: hot routes go straight to the endpoint, the rest and the documents through FastAPI."""

    def __init__(self, endpoint: Endpoint, *, body_bytes_max: int) -> None:
        self._endpoint = endpoint
        self._body_bytes_max = body_bytes_max
        self._framework = self._framed()

    @staticmethod
    def takes(path: str) -> bool:
        """Tell whether a path is of this API."""
        return path.startswith(_OWN)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own types
        found = self._endpoint.find(scope["method"], scope["path"])
        if found is None or not found[0].hot:
            await self._framework(scope, receive, send)
            return
        await Exchange(self._endpoint, *found, self._body_bytes_max)(scope, receive, send)

    def _framed(self) -> FastAPI:
        app = FastAPI(title=TITLE, version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
        schemas = Schemas(self._endpoint.routes)
        for route in self._endpoint.routes:
            app.add_api_route(
                route.path,
                self._framed_route(route),
                methods=[route.method],
                name=route.name,
                operation_id=route.name,
                summary=route.summary,
                tags=[PERMISSIONS[route.name].scope.value],
                status_code=next(iter(route.answers)),
                response_model=None,
                response_class=FrameworkResponse,
                openapi_extra=operation(route, schemas, required=self._endpoint.access.required),
            )
        app.add_exception_handler(HTTPException, self._refuse)

        def document() -> dict[str, Any]:
            if app.openapi_schema is None:
                made = get_openapi(title=TITLE, version=__version__, routes=app.routes)
                made["components"] = {"schemas": schemas.components, "securitySchemes": SECURITY_SCHEMES}
                app.openapi_schema = made
            return app.openapi_schema

        app.openapi = document  # type: ignore[method-assign] # It is meant to be replaced.

        async def reference(_request: FrameworkRequest) -> FrameworkResponse:
            # The framework's own page takes its scripts from another host.
            headers = {"content-type": CONTENT_TYPE, **dict([POLICY])}
            return FrameworkResponse(reference_page(document()), headers=headers)

        app.add_route("/docs", reference, include_in_schema=False)
        return app

    def _framed_route(self, route: Route) -> Callable[[FrameworkRequest], Awaitable[FrameworkResponse]]:
        async def handle(request: FrameworkRequest) -> FrameworkResponse:
            return Exchange(self._endpoint, route, dict(request.path_params), self._body_bytes_max)

        return handle

    async def _refuse(self, request: FrameworkRequest, error: Exception) -> FrameworkResponse:
        """Tell of a place that is not there, or that does not take this method, as a problem."""
        assert isinstance(error, HTTPException)
        # The framework knows only the first of the routes that have a path.
        allowed = ", ".join(self._endpoint.methods(request.url.path)) or (error.headers or {}).get("Allow", "")
        if error.status_code == 405 and allowed:
            problem = make_problem(NOT_ALLOWED, f"What is done here is {allowed}.")
            answer = problem_response(problem, ("allow", allowed))
        else:
            answer = problem_response(make_problem(NOT_FOUND, "There is nothing here."))
        return FrameworkResponse(answer.body, answer.status, dict(answer.headers))
