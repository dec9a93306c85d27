"""Answers as bytes: how a `Response` is written on an HTTP/1.1 connection, and the answers to what is no request."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from penstock.wire.http import Response

if TYPE_CHECKING:
    from collections.abc import Iterable

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


def render_answer(response: Response, common: str, keep_alive: bool, chunks: bool, with_body: bool = True) -> bytes:  # noqa: FBT001, FBT002 - by position, since it is called for every request
    """Write an answer. `common` holds the header lines that all answers share, as `render_headers` makes them.

    With `chunks` a body is written as one chunk, so that botocore notices an answer that was cut (decision record 9).
    The header that says where the body ends comes first, because clients accept a head that was cut.
    """
    lines = ""
    for name, value in response.headers:
        lines += f"{name}: {value}\r\n"
    # A line break inside a header would let whoever chose its value write headers and answers of their own.
    assert lines.count("\n") == len(response.headers) == lines.count("\r"), "a header holds a line break"
    body = response.body
    end = "\r\n" if keep_alive else "connection: close\r\n\r\n"
    status = _STATUS_LINES[response.status]
    if chunks and body and with_body:
        head = f"{status}transfer-encoding: chunked\r\n{common}{lines}{end}{len(body):x}\r\n"
        return b"%b%b\r\n0\r\n\r\n" % (head.encode("latin-1"), body)
    head = f"{status}content-length: {len(body)}\r\n{common}{lines}{end}"
    return head.encode("latin-1") + body if with_body else head.encode("latin-1")


def render_headers(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Write header lines that were meant for uvicorn."""
    return "".join([f"{name.decode('latin-1')}: {value.decode('latin-1')}\r\n" for name, value in headers])


def refusal(status: int, reason: str) -> Response:
    """Make the answer to something that never became a request, or whose answer failed."""
    return Response(
        status=status,
        headers=[("content-type", "text/plain; charset=utf-8")],
        body=f"{reason}\n".encode(),
    )
