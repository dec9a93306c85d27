"""How bodies and queries are written, and how answers, lines and server-sent events are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.client.errors import AnswerInvalid
from penstock.domain.ids import OrderedIds
from penstock.wire.jobs.answers import Problem, StreamLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LINE_BYTES_MAX = 16 * 1024 * 1024
"""The longest line of a stream: an offer with its payload, which is 1 MiB unless the server was built for more."""

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
new_id = OrderedIds().new_id


def reader(kind: type[T]) -> Callable[[bytes, bool], T]:
    """Return what reads an answer of this shape."""
    decode = msgspec.json.Decoder(kind).decode

    def read(body: bytes, _repeated: bool) -> T:  # noqa: FBT001 - as `Call.read` takes it
        return decode(body)

    return read


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return what reads a part of a stream; it raises `AnswerInvalid`."""
    decode = msgspec.json.Decoder(kind).decode

    def read(text: bytes) -> T:
        try:
            return decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise AnswerInvalid(f"The stream is not one of the job API: {error}.") from error

    return read


def read_nothing(_body: bytes, _repeated: bool) -> None:  # noqa: FBT001 - as `Call.read` takes it
    """Read an answer that says nothing but that it was done."""


def segment(text: str) -> str:
    """Quote a text as one part of a path."""
    if not text or not isinstance(text, str):
        raise ValueError(f"A name or an id is a text that is not empty, not {text!r}.")
    return quote(text, safe="")


def query(given: Mapping[str, Any]) -> str:
    """Write what was given as a query, with its question mark; several values have commas between them."""
    texts = {name: _text(value) for name, value in given.items() if value is not None}
    return f"?{urlencode(texts)}" if texts else ""


def body(given: Mapping[str, Any]) -> bytes:
    """Write what was given as JSON; None was not given."""
    return encode({name: value for name, value in given.items() if value is not None})


def _text(value: Any) -> str:  # noqa: ANN401 - a text, a number, or several texts
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ",".join(value)


class Line(StreamLine, frozen=True, kw_only=True):
    """A line of a stream of offers; a `problem` says why it cannot go on."""

    problem: Problem | None = None


class Lines:
    """Splits what comes into lines, without their ends."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return the lines that are whole now."""
        head, end, tail = data.rpartition(b"\n")
        if not end:
            self._parts.append(data)
            self._bytes += len(data)
            if self._bytes > LINE_BYTES_MAX:
                raise AnswerInvalid(f"A line of the stream is longer than {LINE_BYTES_MAX} bytes.")
            return ()
        whole = b"".join((*self._parts, head))
        self._parts = [tail] if tail else []
        self._bytes = len(tail)
        return whole.split(b"\n")


class ServerSentEvent(msgspec.Struct, frozen=True):
    """An event as it stands in the stream."""

    kind: str
    data: bytes


class ServerSentEvents:
    """Reads server-sent events, as far as this API uses them: one line of data each, and comments as signs of life."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._kind = ""
        self._data = b""

    def feed(self, data: bytes) -> Iterable[ServerSentEvent]:
        """Return the events that are whole now."""
        events = []
        for line in self._lines.feed(data):
            name, _, value = line.rstrip(b"\r").partition(b": ")
            if name == b"event":
                self._kind = value.decode()
            elif name == b"data":
                self._data = value
            elif not name and not value and self._data:
                events.append(ServerSentEvent(self._kind, self._data))
                self._kind, self._data = "", b""
        return events
