"""Reading requests: which are for SQS and which for the application, and which are none at all."""

from __future__ import annotations

import abc
import logging
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.domain.errors import PenstockError
from penstock.server.admission import TOO_MUCH, with_retry
from penstock.server.answer_bytes import refusal
from penstock.server.exchange import Exchange
from penstock.server.patience import Patience
from penstock.server.request_head import (
    FREQUENT_NAMES,
    JOBS,
    for_jobs,
    for_sqs,
    framing_fault,
    has_body,
    head_bytes,
    origin_form,
)
from penstock.server.request_memory import ConnectionMemory
from penstock.wire.http import Request
from penstock.wire.jobs.problems import TOO_LARGE, make_problem, problem_response

if TYPE_CHECKING:
    import asyncio

    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from penstock.server.admission import Admission
    from penstock.server.exchange import ConnectionLimits
    from penstock.wire.http import Response

_log = logging.getLogger(__name__)
_frequent = FREQUENT_NAMES.get

HEADERS_MAX = 256
"""How many headers a head or a trailer may have: each takes far more memory than its few bytes."""


class ReadingProtocol(HttpToolsProtocol, abc.ABC):
    """The reading half of a connection: turns bytes into exchanges, and hands others than those of SQS to uvicorn.

    What cannot be a request, or is too large, becomes an exchange that is answered already, the connection's last.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None,
        limits: ConnectionLimits,
        admission: Admission,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._admission = admission
        self._patience = Patience(self.loop, limits.patience_s, self._give_up)
        self._current: RequestResponseCycle | Exchange | None = None  # What is being answered.
        self._in_message = False
        self._in_head = False
        self._fast = False
        self._deaf = False  # Nothing that still comes is a request.
        # Of the message that is being read: how much has come for certain, and at most. See `_count`.
        self._read_bytes = self._read_bytes_most = 0
        self._arriving_bytes = 0
        self._ended_one = False
        self._unparsed_bytes = 0
        self._method = self._path = self._query = ""
        self._incoming: dict[str, str] = {}
        self._fields: dict[str, str] = {}
        self._chunks: list[bytes | bytearray] = []
        self._in_trailer = False  # Or between the size of a chunk and its first byte, which looks the same.
        self._trailer_bytes = 0  # How much has come since that began, without what came together with its beginning.
        self._body_bytes = 0
        self._keep_alive = True
        self._recognised = admission.authenticate is None  # Whether the last request said who makes it, if it has to.
        self._for_pages: list[tuple[str, str]] | None = None  # Headers without which no page can read the answer.
        self._ready_answer: Response | None = None  # Of a request that is answered by its head.
        self._memory = ConnectionMemory(admission.memory)
        self._message_bytes = 0  # How much of it the message that is being read holds.
        self._cycle_bytes: dict[RequestResponseCycle, int] = {}  # The same of those that the application answers.

    @abc.abstractmethod
    def _enter(self, exchange: Exchange) -> None:
        """Take a request that was read whole, or the answer to what is none."""

    @abc.abstractmethod
    def _far_ahead(self) -> bool:
        """Tell whether enough requests wait for their turn."""

    @abc.abstractmethod
    def _give_up(self) -> None:
        """Be rid of a client that did not do its part in time."""

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._read_bytes += len(data)
            if self._read_bytes > self._limits.linger_bytes_max:
                self.transport.abort()
            return
        self._arriving_bytes = len(data)
        self._ended_one = False
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:
            _log.error("A request could not be read, which is a bug", exc_info=error.__context__)
            self._refuse(500, "The server failed.")
        except httptools.HttpParserError:
            self._refuse(400, "This is not an HTTP request.")
        else:
            if self._in_message and not self._deaf:
                self._count(len(data))

    def _count(self, arrived_bytes: int) -> None:
        """Refuse a message that is not all there and is too large by what has come of it already."""
        if self._read_bytes_most == 0:
            self._patience.start()
        self._read_bytes_most += arrived_bytes
        # The parser keeps what there is of a head or a trailer. If something else came with it, too much is held.
        if (self._in_head or self._in_trailer) and not self._hold(arrived_bytes):
            self._refuse_with(with_retry(refusal(503, TOO_MUCH.reason)))
            return
        # Of what came together with the end of another message, nobody knows how much belongs to this one.
        if not self._ended_one:
            self._read_bytes += arrived_bytes
        if self._in_trailer:
            self._trailer_bytes += arrived_bytes
        head_bytes_max = self._limits.head_bytes_max
        if (self._in_head and self._read_bytes > head_bytes_max) or (
            self._in_trailer and self._trailer_bytes > head_bytes_max
        ):
            self._refuse_head()
        elif self._read_bytes > self._limits.wire_bytes_max:
            self._refuse_body()

    def _feed(self, data: bytes) -> None:
        while data and not self._deaf:
            if self._unparsed_bytes > 0:
                part, data = data[: self._unparsed_bytes], data[self._unparsed_bytes :]
                self._unparsed_bytes -= len(part)
                self.on_body(part)
                if self._unparsed_bytes == 0:
                    self._end_message()
                continue
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # A server may leave the wish for another protocol unanswered, and we do. The parser then takes the
                # request's body for that other protocol, and leaves it to us.
                data = data[upgrade.args[0] :]
            else:
                return

    def on_message_begin(self) -> None:
        self.url = b""
        self._incoming = {}
        self._in_message = self._in_head = self._fast = True
        self._in_trailer = False
        self._read_bytes = self._read_bytes_most = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # It is called for every header of every request, so the usual ones take the fewest steps.
        fields = self._incoming
        key = _frequent(name)
        if key is None:
            if len(fields) >= HEADERS_MAX:
                self._refuse(431, f"There are more than {HEADERS_MAX} headers.")
                return
            key = name.decode("latin-1").lower()
        if key not in fields:
            fields[key] = value.decode("latin-1")
        else:
            fields[key] = f"{fields[key]},{value.decode('latin-1')}"  # A header that is repeated is a list.

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._deaf:
            return
        # What comes under the same name from here on is a trailer, which nobody asked for.
        fields, self._incoming = self._incoming, {}
        self._fields = fields
        # To add up the head takes time, so it is done only where much has come.
        head_bytes_max = self._limits.head_bytes_max
        if (
            self._read_bytes_most + self._arriving_bytes > head_bytes_max
            and head_bytes(self.url, fields) > head_bytes_max
        ):
            self._refuse_head()
            return
        url = self.url if self.url == b"/" else origin_form(self.url)
        if not url:
            self._refuse(400, "The request's target is not the address of anything.")
            return
        self._path, _, self._query = url.decode("latin-1").partition("?")
        parser = self.parser
        self._method = parser.get_method().decode("ascii")
        # HTTP/1.0 clients may ask for keep-alive, which needs a header of its own in the answer. We do not grant it.
        self._keep_alive = parser.should_keep_alive() and ("connection" not in fields or self._is_http_1_1())
        fast = for_sqs(self._method, self._path, fields) or for_jobs(self._method, self._path, fields)
        limits = self._limits
        if not self._admit(fields, limits.body_bytes_max if fast else limits.wire_bytes_max):
            return
        if not fast and self._ready_answer is None:
            self._begin_asgi(url, fields)
            return
        self._chunks = []
        self._body_bytes = 0
        if "expect" in fields and self._current is None and fields["expect"].lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _admit(self, fields: dict[str, str], body_bytes_max: int) -> bool:
        """Decide by its head whether the rest of a request may come. If not, it has been refused."""
        admission = self._admission
        self._for_pages = self._ready_answer = None
        # Nearly every request passes here.
        if self._method != "POST" or "transfer-encoding" in fields or not admission.guard.passes(fields):
            fault = framing_fault(fields, http_1_1=self._is_http_1_1())
            if fault is not None:
                self._refuse(400, fault)
                return False
            try:
                self._for_pages = admission.guard.check(self._head())
            except PenstockError as error:
                return self._answer_head(admission.refuse(self._head(), error))
            preflight = admission.guard.preflight(self._head())
            if preflight is not None:
                return self._answer_head(preflight)
        length = int(fields.get("content-length", "0"))
        if length > body_bytes_max:
            self._refuse_body()
            return False
        if admission.authenticate is not None:
            try:
                self._recognised = admission.authenticate(self._head())
            except PenstockError as error:
                return self._answer_head(admission.refuse(self._head(), error))
        if self._current is not None:
            length += head_bytes(self.url, fields)  # It may wait for its turn as long as its body.
        return self._hold(length) or self._answer_head(admission.refuse(self._head(), TOO_MUCH))

    def _head(self) -> Request:
        """Return the request that is being read, without its body."""
        return Request(self._method, self._path, self._query, self._fields, b"")

    def _answer_head(self, answer: Response) -> bool:
        """Answer a request without its body. Return False if there is one, since the connection ends with this."""
        if has_body(self._fields):
            self._refuse_with(answer)
            return False
        self._ready_answer = answer
        return True

    def _hold(self, count: int) -> bool:
        """Account for bytes of the message that is being read; return False if there is no room for them."""
        if not self._memory.hold(count, self._recognised):
            return False
        self._message_bytes += count
        if not self._fast and not self.cycle.response_complete:
            self._cycle_bytes[self.cycle] = self._message_bytes
        return True

    def _is_http_1_1(self) -> bool:
        return self.parser.get_http_version() == "1.1"

    def _begin_asgi(self, url: bytes, fields: dict[str, str]) -> None:
        """Let uvicorn see a request from its beginning, now that it is known to be none of ours."""
        super().on_message_begin()
        self.url = url
        for name, value in fields.items():
            super().on_header(name.encode("latin-1"), value.encode("latin-1"))
        try:
            super().on_headers_complete()
        except (UnicodeDecodeError, httptools.HttpParserInvalidURLError):
            self._refuse(400, "The request's target is not the address of anything.")
            return
        self._fast = False
        if self._message_bytes:
            self._cycle_bytes[self.cycle] = self._message_bytes
        if self._for_pages:
            added = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._for_pages]
            self.cycle.default_headers = [*self.cycle.default_headers, *added]
        if self._current is None:
            self._current = self.cycle
        elif not self._far_ahead():
            # uvicorn stops reading here, and then would not learn that the client left.
            self.flow.resume_reading()

    def on_chunk_header(self) -> None:
        self._in_trailer = True
        self._trailer_bytes = -self._arriving_bytes

    def on_body(self, body: bytes) -> None:
        if self._deaf:
            return
        self._in_trailer = False
        grows = "transfer-encoding" in self._fields
        if not self._fast:
            if grows and not self.cycle.response_complete and not self._hold(len(body)):
                self._refuse_with(self._admission.refuse(self._head(), TOO_MUCH))
                return
            super().on_body(body)
            return
        if grows and not self._hold(len(body)):
            self._refuse_with(self._admission.refuse(self._head(), TOO_MUCH))
            return
        # An object for each of many small pieces would take far more memory than what is in them.
        if len(self._chunks) < 2:
            self._chunks.append(bytearray(body) if self._chunks else body)
        else:
            self._chunks[1] += body
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes_max:
            self._refuse_body()

    def on_message_complete(self) -> None:
        if self._deaf:
            return
        if self.parser.should_upgrade():
            self._unparsed_bytes = int(self._fields.get("content-length", "0"))
            if "transfer-encoding" in self._fields:
                self._refuse(400, "A request to change the protocol cannot have a body in chunks.")
                return
            if self._unparsed_bytes > 0:
                return
        self._end_message()

    def _end_message(self) -> None:
        self._in_message = False
        self._ended_one = True
        if self._deaf:
            return
        if not self._fast:
            if self.cycle.response_complete:
                self._memory.free(self._message_bytes)  # It came after the answer.
            self._message_bytes = 0
            super().on_message_complete()
            if self._current is not None:  # It is None if the application has answered without reading everything.
                self._patience.stop()
            return
        self._patience.stop()
        request = Request(self._method, self._path, self._query, self._fields, b"".join(self._chunks))
        self._chunks = []
        # A connection is only kept where the client speaks HTTP/1.1.
        chunks = self._keep_alive or self._is_http_1_1()
        exchange = Exchange(request, self._keep_alive, chunks, self._message_bytes, self._for_pages, self._ready_answer)
        self._message_bytes = 0
        self._enter(exchange)

    def _refuse_head(self) -> None:
        self._refuse(431, f"The headers are larger than {self._limits.head_bytes_max} bytes.")

    def _refuse_body(self) -> None:
        reason = f"The request is larger than {self._limits.body_bytes_max} bytes."
        if self._path.startswith(JOBS):
            self._refuse_with(problem_response(make_problem(TOO_LARGE, reason)))
        else:
            self._refuse(413, reason)

    def _refuse(self, status: int, reason: str) -> None:
        self._refuse_with(refusal(status, reason))

    def _refuse_with(self, answer: Response) -> None:
        """Have this as the last answer of the connection, after those that come before it, unless it has one."""
        self._chunks = []
        if self._deaf:
            return
        if self._in_message and not self._in_head and not self._fast:
            if self.cycle.response_started:
                # The application may be waiting for the rest of this very request; so it learns that it will not come.
                self._deaf = True
                self.transport.abort()
                return
            self._withdraw(self.cycle)
        self._memory.free(self._message_bytes)
        self._message_bytes = 0
        self._enter(Exchange(None, keep_alive=False, for_pages=self._for_pages, response=answer))

    def _withdraw(self, cycle: RequestResponseCycle) -> None:
        """Take a request from the application, which has not begun to answer it; to that its client is gone."""
        cycle.disconnected = True
        cycle.message_event.set()
        self._cycle_bytes.pop(cycle, None)
        if self._current is cycle:
            self._current = None
        else:
            self.pipeline.popleft()
