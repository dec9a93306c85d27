"""HTTP/1.1 as the client speaks it, without I/O: how requests are written, and how answers are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools
import msgspec

from penstock.client.errors import AnswerInvalid

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""The largest answer that is read. One dequeue offers about 16 MiB of payloads."""
HEAD_BYTES_MAX = 64 * 1024
READ_BYTES = 256 * 1024
_INFORMATION = range(100, 200)


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A request. `target` is the path with its query, already quoted; `headers` are whole lines, each with its end."""

    method: str
    target: str
    body: bytes = b""
    headers: str = ""
    waits: bool = False
    """Whether the server may wait before it answers."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A whole answer."""

    status: int
    body: bytes


def head_lines(authority: str, authorization: str) -> str:
    """Return the end of the request line and the header lines that all requests of a connection share."""
    lines = f" HTTP/1.1\r\nhost: {authority}\r\nuser-agent: penstock\r\ncontent-type: application/json\r\n"
    return f"{lines}authorization: Bearer {authorization}\r\n" if authorization else lines


def request_bytes(request: Outgoing, shared: str) -> bytes:
    """Write a request; `shared` comes from `head_lines`."""
    head = (
        f"{request.method} {request.target}{shared}{request.headers}content-length: {len(request.body)}\r\n\r\n"
    ).encode("latin-1")
    return head + request.body


class AnswerReader:
    """Reads the answers of one connection, one after the other; it is httptools' protocol, too.

    Between `begin` and `whole` an answer is under way. With a `sink`, parts of the body go there as they come; without
    one they are kept, up to `ANSWER_BYTES_MAX`.
    """

    __slots__ = (
        "_begun",
        "_body_bytes",
        "_fault",
        "_head_bytes",
        "_parser",
        "_parts",
        "_sink",
        "keep",
        "status",
        "whole",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._fault = ""
        self.keep = True
        """Whether the connection can be used for another request."""
        self.begin()

    def begin(self, sink: Callable[[bytes], None] | None = None) -> None:
        """Expect an answer."""
        self._parts: list[bytes] = []
        self._sink = sink
        self._body_bytes = 0
        self._head_bytes = 0
        self._begun = False
        self.whole = False
        self.status = 0
        """0 until the head is whole."""

    @property
    def begun(self) -> bool:
        """Whether any byte of the answer has come."""
        return self._begun

    def feed(self, data: bytes) -> None:
        """Read on; raises `AnswerInvalid` if this is no HTTP, or too large."""
        self._begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.keep = False
            raise AnswerInvalid(self._fault or f"The answer is not HTTP: {error}.") from None
        if not self.status:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.keep = False
                raise AnswerInvalid("The head of the answer is too large.")

    def answer(self) -> Answer:
        """Return the answer, which is whole."""
        assert self.whole
        parts = self._parts
        return Answer(self.status, parts[0] if len(parts) == 1 else b"".join(parts))

    # -- what httptools calls ---------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        status: int = self._parser.get_status_code()
        if status not in _INFORMATION:
            self.status = status

    def on_body(self, part: bytes) -> None:
        if self._sink is not None:
            self._sink(part)
            return
        self._body_bytes += len(part)
        if self._body_bytes > ANSWER_BYTES_MAX:
            self._stop(f"The answer is larger than {ANSWER_BYTES_MAX} bytes.")
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if not self.status:
            return  # It was 100 Continue or the like; the answer follows.
        if self.whole:
            self._stop("More came than was asked for.")
        self.whole = True
        self.keep = self._parser.should_keep_alive()

    def _stop(self, fault: str) -> None:
        """End the reading: httptools makes an error of its own out of this one."""
        self._fault = fault
        raise AnswerInvalid(fault)
