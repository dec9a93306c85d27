"""One kept-alive connection of the load generator: a request, its answer, the next request."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Protocol

from benchmarks.errors import WorkFailed

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CLOSE = re.compile(rb"HTTP/1\.0|\r\nconnection: *close", re.IGNORECASE)
_OK = re.compile(rb"HTTP/1\.[01] 20[02] ")
_SHOWN_BYTES = 300


class Dialogue(Protocol):
    """What a connection says next."""

    def request(self) -> bytes | None:
        """Return the next request; None ends it."""

    def answered(self, answer: bytes) -> None:
        """Take an answer (head and body), of which it is known only that its status is 200 or 202."""


def dechunk(data: bytes, start: int) -> bytes | None:
    """Put together a body that comes in chunks from `start` on; None says that there is more to come."""
    parts: list[bytes] = []
    while (line_end := data.find(b"\r\n", start)) >= 0:
        size = int(data[start:line_end].partition(b";")[0], 16)
        start = line_end + 2 + size + 2
        if start > len(data):
            return None
        if not size:
            return b"".join(parts)
        parts.append(data[line_end + 2 : start - 2])
    return None


class Connection(asyncio.Protocol):
    """Leads a dialogue. It ends with the dialogue, or with `WorkFailed`; `ended` holds which.

    A server that closes after each answer is connected to again, as any client would do.
    """

    def __init__(self, dialogue: Dialogue, reconnect: Callable[[Connection], None]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._dialogue = dialogue
        self._reconnect = reconnect
        self._transport: asyncio.Transport | None = None
        self._asked = False
        self._closes: bool | None = None
        self._missing = 0
        self._parts: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if self._closes:
            self.ask()

    def ask(self) -> None:
        """Say the next thing, or be done."""
        asked = self._dialogue.request()
        assert self._transport is not None
        if asked is None:
            self.end()
        else:
            self._asked = True
            self._transport.write(asked)

    def data_received(self, data: bytes) -> None:
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            # A head may come in pieces too, and then the length is not known before.
            data = b"".join(self._parts)
            self._parts = []
        head_end = data.find(b"\r\n\r\n")
        found = _LENGTH.search(data, 0, head_end + 1) if head_end >= 0 else None
        if found is None and head_end >= 0 and _CHUNKED.search(data, 0, head_end + 1):
            body = dechunk(data, head_end + 4)
            if body is None:
                self._missing = 1
                self._parts.append(data)
            else:
                self._judge(data[: head_end + 4] + body, head_end)
            return
        if found is None and head_end >= 0:
            self.fail(f"an answer does not tell its length: {data[:_SHOWN_BYTES]!r}")
            return
        self._missing = 1 if found is None else head_end + 4 + int(found[1]) - len(data)
        if self._missing > 0:
            self._parts.append(data)
        elif self._missing < 0:
            self.fail(f"the server answered: {data[:_SHOWN_BYTES]!r}")
        else:
            self._judge(data, head_end)

    def _judge(self, answer: bytes, head_end: int) -> None:
        if _OK.match(answer):
            self._take(answer, head_end)
        else:
            self.fail(f"the server answered: {answer[:_SHOWN_BYTES]!r}")

    def _take(self, answer: bytes, head_end: int) -> None:
        self._asked = False
        if self._closes is None:
            self._closes = _CLOSE.search(answer, 0, head_end) is not None
        try:
            self._dialogue.answered(answer)
        except WorkFailed as failure:
            self.fail(str(failure))
            return
        if not self._closes:
            self.ask()
        elif not self.ended.done():
            assert self._transport is not None
            self._transport.close()
            self._reconnect(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._asked:
            self.fail(f"the server closed a connection that waited for an answer ({exc})")

    def end(self) -> None:
        """Say no more."""
        if self._transport is not None:
            self._transport.close()
        if not self.ended.done():
            self.ended.set_result(None)

    def fail(self, reason: str) -> None:
        """Give up."""
        self._asked = False
        if not self.ended.done():
            self.ended.set_exception(WorkFailed(reason))
        self.end()
