"""Answers, byte by byte."""

from __future__ import annotations

import pytest

from penstock.server.answer_bytes import refusal, render_answer, render_headers
from penstock.wire.http import Response


@pytest.mark.parametrize(
    ("response", "keep_alive", "chunks", "with_body", "rendered"),
    [
        (Response(), True, True, True, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        (Response(body=b"ab"), True, False, True, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"),
        (Response(body=b"ab"), True, True, False, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"),
        (
            Response(headers=[("a", "1")], body=b"x" * 26),
            True,
            True,
            True,
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\na: 1\r\n\r\n1a\r\n" + b"x" * 26 + b"\r\n0\r\n\r\n",
        ),
        (
            Response(status=400, headers=[("a", "1"), ("B", "é")]),
            False,
            True,
            True,
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\na: 1\r\nB: \xe9\r\nconnection: close\r\n\r\n",
        ),
        (
            refusal(400, "No."),
            True,
            False,
            True,
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\ncontent-type: text/plain; charset=utf-8\r\n\r\nNo.\n",
        ),
    ],
)
def test_an_answer_is_written(
    response: Response, keep_alive: bool, chunks: bool, with_body: bool, rendered: bytes
) -> None:
    assert render_answer(response, "", keep_alive, chunks, with_body) == rendered


def test_every_answer_has_the_common_headers() -> None:
    common = render_headers([(b"date", b"today"), (b"x", b"y")])
    rendered = render_answer(Response(), common, True, True)
    assert rendered == b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ndate: today\r\nx: y\r\n\r\n"


@pytest.mark.parametrize("value", ["1\r\nx: 2", "1\nx: 2", "1\rx: 2", "\r\n"])
def test_no_header_smuggles_in_another(value: str) -> None:
    with pytest.raises(AssertionError, match="line break"):
        render_answer(Response(headers=[("a", value)]), "", True, True)
