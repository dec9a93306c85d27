"""One request of the job API with what was found out about it, and the kinds of answers to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import parse_qsl

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.job_errors import JobInvalid
from penstock.domain.limits import SECOND_MS
from penstock.domain.repeats import call_key
from penstock.server.jobs.access import Caller
from penstock.wire.http import Request, Response
from penstock.wire.jobs.problems import problem_of_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.wire.jobs.answers import Problem

JSON = ("content-type", "application/json")
NO_STORE = ("cache-control", "no-store")
PARAMETERS_MAX = 30
_DIGITS_MAX = 18
_encode = msgspec.json.Encoder().encode
_JSON_HEADERS = [JSON, NO_STORE]

T = TypeVar("T")


class Streamed(msgspec.Struct, kw_only=True):
    """An answer that goes on for long. `closed` is called when it ends, however that comes about."""

    content_type: str
    chunks: AsyncGenerator[bytes]
    closed: Callable[[], None]
    headers: list[tuple[str, str]] = []


class Call(msgspec.Struct, frozen=True):
    """A request, who makes it, what stands in its path, and the id that logs and jobs know it by."""

    request: Request
    caller: Caller
    path: dict[str, str]
    correlation_id: str

    def body(self, decoder: msgspec.json.Decoder[T]) -> T:
        """Read the body; raises what `problem_of_shape` tells."""
        return read_body(self.request, decoder)

    def key(self, request_id: str | None, *parts: str) -> str | None:
        """Return what identifies a call that its caller may repeat, by `parts` that say what it is about; None if it
        came without a request id. Nobody meets a call of another caller.
        """
        return None if request_id is None else call_key(self.caller.name, self.caller.tenant or "", *parts, request_id)

    def query(self) -> dict[str, str]:
        """Read what stands behind the question mark."""
        if not self.request.query:
            return {}
        try:
            return dict(
                parse_qsl(self.request.query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="strict")
            )
        except ValueError as error:
            raise JobInvalid(f"The query cannot be read: {error}.", "query") from None


Handler = Callable[[Call], Awaitable[Response | Streamed]]

Refuse = Callable[[PenstockError], None]
Beginning = Callable[[Request, Callable[[], Caller], Refuse], bool]
"""Sees to it that a request is refused, now or later, if that can be told at once; False says that nothing was done.

Who asks is told by the second argument, which raises what is wrong with that.
"""


class Parameter(msgspec.Struct, frozen=True):
    """A parameter in a query or a header, for the document."""

    name: str
    description: str
    schema: dict[str, Any]
    place: str = "query"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A place of the API: how it is reached, who may, what it takes, and what it answers."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    begin: Beginning | None = None
    body: Any = None
    answers: dict[int, Any]
    """By status, the shape of the body; None where there is none."""
    streamed: str | None = None
    """The content type of what it answers instead, with 200, if it is asked for a stream."""
    parameters: tuple[Parameter, ...] = ()


def read_body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Read the body of a request; raises what `problem_of_shape` tells."""
    body = request.body
    if not body.isascii():
        # msgspec hands JSON inside of JSON on as it is.
        body.decode()
    return decoder.decode(body or b"{}")


def read_entry(decoder: msgspec.json.Decoder[T], text: msgspec.Raw, place: str) -> T | Problem:
    """Read one of several, which has to answer only for itself; `place` is what its fields are named by."""
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:
        problem = problem_of_shape(error)
        problem.field = f"{place}.{problem.field}" if problem.field else place
        return problem


class Batch(Generic[T]):
    """A shape with a list of entries, each of which has to answer only for itself."""

    def __init__(self, shape: type, texts: type, entry: Any, field: str) -> None:  # noqa: ANN401 # A union is no type.
        """`texts` is the shape before its entries are read, and `field` is where they are in both."""
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)
        self._texts: msgspec.json.Decoder[Any] = msgspec.json.Decoder(texts)
        self._entry: msgspec.json.Decoder[T] = msgspec.json.Decoder(entry)
        self._field = field

    def read(self, request: Request) -> Sequence[T | Problem]:
        """Read the entries: all at once or, if any of them is wrong, each by itself."""
        try:
            whole: list[T] = getattr(read_body(request, self._decoder), self._field)
        except (ValueError, RecursionError):
            entries: list[T | Problem] = []
            for place, text in enumerate(getattr(read_body(request, self._texts), self._field)):
                entry = read_entry(self._entry, text, f"{self._field}[{place}]")
                entries.append(entry)
            return entries
        return whole


def answer_json(value: object, *headers: tuple[str, str], status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(status=status, headers=[*_JSON_HEADERS, *headers], body=_encode(value))


def whole_number(query: Mapping[str, str], name: str, default: int) -> int:
    """Read a whole number of a query; raises `JobInvalid`."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise JobInvalid(f"{name} is not a whole number.", name)
    return int(text)


def seconds(query: Mapping[str, str], name: str) -> int:
    """Read a number of seconds of a query as milliseconds, 0 if it is absent; raises `JobInvalid`."""
    text = query.get(name, "0")
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 <= given <= 1_000_000:
        raise JobInvalid(f"{name} is not a number of seconds.", name)
    return round(given * SECOND_MS)


def no_blank(query: Mapping[str, str], name: str) -> str | None:
    """Read a text of a query: printable, or `JobInvalid`; None if it is absent."""
    text = query.get(name)
    if text is not None and not text.isprintable():
        raise JobInvalid(f"{name} holds characters that are not printable.", name)
    return text
