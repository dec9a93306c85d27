"""Which part of the server a request is for: SQS, the job API, or the application with all the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from penstock.domain.errors import ServerOverloaded
from penstock.server.admission import with_retry
from penstock.server.app import problem_answer
from penstock.server.jobs.app import JobApp
from penstock.server.jobs.call import Streamed
from penstock.server.request_head import JOBS, for_sqs

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

    from penstock.domain.errors import PenstockError
    from penstock.server.app import App
    from penstock.server.fast_path import Reply
    from penstock.server.jobs.endpoint import Endpoint
    from penstock.server.sqs import SqsEndpoint
    from penstock.wire.http import Request, Response

_SQS_MESSAGES = re.compile(r"/v1/queues/[^/]+/messages")
"""A look at the messages of an SQS queue, which is not of the job API."""


class FastFront:
    """What the fast path answers: SQS, and the frequent requests of the job API."""

    def __init__(self, sqs: SqsEndpoint, jobs: Endpoint) -> None:
        self._sqs = sqs
        self._jobs = jobs

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        if request.path.startswith(JOBS):
            answer = await self._jobs.respond(request)
            assert not isinstance(answer, Streamed), "streams are for the application"
            return answer
        return await self._sqs.answer(request)

    def begin(self, request: Request, reply: Reply) -> bool:
        """Begin to answer a request without a task, if it is one that can be."""
        return (self._jobs if request.path.startswith(JOBS) else self._sqs).begin(request, reply)

    def recognise(self, head: Request) -> bool:
        """Return whether a request says who makes it, before its body is there; raise if it is refused for that.

        What is neither SQS nor a route of the job API takes no body to speak of, and decides by itself.
        """
        if for_sqs(head.method, head.path, head.headers):
            return self._sqs.recognise(head)
        return self._jobs.recognise(_as_routed(head))

    def refuse(self, head: Request, error: PenstockError) -> Response:
        """Refuse a request without having seen its body, as the part that it is for would do it."""
        if for_sqs(head.method, head.path, head.headers):
            answer = self._sqs.refuse(head, error)
        elif JobApp.takes((routed := _as_routed(head)).path):
            return self._jobs.refuse(routed, error)
        else:
            answer = problem_answer(error)
        return with_retry(answer) if isinstance(error, ServerOverloaded) else answer


def _as_routed(head: Request) -> Request:
    """Return a head with its path as the application sees it, in which nothing is escaped."""
    if "%" not in head.path:
        return head
    return msgspec.structs.replace(head, path=unquote(head.path))


class Front:
    """An ASGI application that hands each request to the one that it is for."""

    def __init__(self, app: App, jobs: JobApp) -> None:
        self._app = app
        self._jobs = jobs

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        assert scope["type"] == "http", "uvicorn is told to serve nothing else"
        path = scope["path"]
        if self._jobs.takes(path) and not _SQS_MESSAGES.fullmatch(path):
            await self._jobs(scope, receive, send)
        else:
            await self._app(scope, receive, send)
