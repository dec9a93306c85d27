"""One request of the API as ASGI brings it: read, answered by its route, and written back."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from penstock.server.jobs.call import Streamed
from penstock.wire.http import Request
from penstock.wire.jobs.problems import TOO_LARGE, make_problem, problem_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.server.jobs.call import Route
    from penstock.server.jobs.endpoint import Endpoint
    from penstock.wire.http import Response

    Receive = Callable[[], Awaitable[Any]]
    Send = Callable[[Any], Awaitable[None]]

_log = logging.getLogger(__name__)


class _Gone(Exception):
    """The client went away before its request was whole."""


class Exchange:
    """One request on its way through a handler and back. A client that leaves is noticed at once, whatever goes on."""

    def __init__(self, endpoint: Endpoint, route: Route, path: dict[str, str], body_bytes_max: int) -> None:
        self._endpoint = endpoint
        self._route = route
        self._path = path
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:  # noqa: ANN401 - ASGI's own types
        try:
            body = await self._read(receive)
        except _Gone:
            return
        if body is None:
            problem = make_problem(TOO_LARGE, f"The request is larger than {self._body_bytes_max} bytes.")
            await write(problem_response(problem, ("connection", "close")), send)
            return
        request = Request(
            scope["method"],
            scope["path"],
            scope["query_string"].decode("latin-1"),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            body,
        )
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await self._answer(request, gone, send)
        finally:
            gone.cancel()

    async def _read(self, receive: Receive) -> bytes | None:
        """Read a whole body; None if it is too large."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await receive()
            if event["type"] != "http.request":
                raise _Gone
            part: bytes = event.get("body", b"")
            size += len(part)
            if size > self._body_bytes_max:
                return None
            parts.append(part)
            if not event.get("more_body", False):
                return b"".join(parts)

    async def _answer(self, request: Request, gone: asyncio.Future[None], send: Send) -> None:
        work = asyncio.ensure_future(self._endpoint.answer(self._route, self._path, request))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not work.done():
                # The client left, or the server's patience is at an end: the handler undoes what it did for it alone.
                work.cancel()
                await asyncio.wait((work,))
        if work.cancelled():
            return
        answer = work.result()
        if isinstance(answer, Streamed):
            await _stream(answer, gone, send)
            return
        if not gone.done():
            await write(answer, send)
        if gone.done() and answer.undelivered is not None:
            await answer.undelivered()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def write(answer: Response, send: Send) -> None:
    """Write a whole answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    if answer.status != 204:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _stream(answer: Streamed, gone: asyncio.Future[None], send: Send) -> None:
    """Write parts as they come, until there are no more or nobody reads them."""
    step: asyncio.Future[bytes] | None = None
    try:
        headers = [(b"content-type", answer.content_type.encode()), (b"cache-control", b"no-store")]
        # Proxies keep what they are not told to pass on.
        headers.append((b"x-accel-buffering", b"no"))
        headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not gone.done():
            step = asyncio.ensure_future(_next(answer))
            await asyncio.wait((step, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                break
            part = step.result()
            if not part:
                await send({"type": "http.response.body", "body": b""})
                break
            await send({"type": "http.response.body", "body": part, "more_body": True})
    finally:
        # First, and without waiting: whoever cancels this task must not keep it from being done.
        answer.closed()
        if step is not None:
            step.cancel()
            # Whatever came of it, nobody is there to be told.
            await asyncio.gather(step, return_exceptions=True)
        await answer.chunks.aclose()


async def _next(answer: Streamed) -> bytes:
    """Return the next part; b"" after the last."""
    return await anext(answer.chunks, b"")
