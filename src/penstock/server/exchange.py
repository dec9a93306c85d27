"""One request on its way to its answer, and how much a connection may take."""

from __future__ import annotations

import asyncio

import msgspec

from penstock.wire.http import Request, Response


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one connection may take."""

    head_bytes_max: int = 64 * 1024
    """The request line and all headers."""
    body_bytes_max: int = 4 * 1024 * 1024
    """A body. A message of 1 MiB may be three times as long in JSON (`é` is \\u00e9) or in a form (%C3%A9)."""
    wire_bytes_max: int = 16 * 1024 * 1024
    """A whole request as it is sent, with the framing of chunks and with trailers."""
    pipeline_requests_max: int = 16
    """How many requests are read ahead while one is answered; all together no more than `body_bytes_max`."""
    patience_s: float = 60
    """How long a client may take to send a whole request, to send the next one, or to read an answer."""
    linger_s: float = 2
    """How long a refused client is listened to, so that it finds the answer before the connection is cut."""
    linger_bytes_max: int = 16 * 1024 * 1024


class Exchange(msgspec.Struct, eq=False):
    """A request of the fast path in its place between others, which may be uvicorn's own cycles.

    One without a request is the answer to something that never became one.
    """

    request: Request | None
    keep_alive: bool
    chunks: bool = False
    """Whether the client understands an answer in chunks, as every one of HTTP/1.1 does."""
    held_bytes: int = 0
    """How much of the connection's memory this holds until it is answered."""
    for_pages: list[tuple[str, str]] | None = None
    """Headers that every answer to this request needs, for the browser that asked."""
    response: Response | None = None
    task: asyncio.Task[None] | None = None
    # This is all that uvicorn looks at, of a cycle's state, to decide whether the next request may start.
    response_complete: bool = False

    @property
    def body_bytes(self) -> int:
        """What this request takes while it waits for its turn."""
        return 0 if self.request is None else len(self.request.body)
