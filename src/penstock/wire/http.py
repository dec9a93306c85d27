"""An HTTP request and its answer as plain values, whatever server or test carries them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request, read whole. Header names are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class Response(msgspec.Struct, kw_only=True):
    """An answer. `undelivered` is awaited if the client was gone before the answer could be written."""

    status: int = 200
    headers: list[tuple[str, str]] = []
    body: bytes = b""
    undelivered: Callable[[], Awaitable[None]] | None = None
