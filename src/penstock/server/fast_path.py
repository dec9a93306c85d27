"""The fast path: SQS requests go from uvicorn's parser to the endpoint and back, without ASGI in between."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.server.admission import LINGERING_MAX, Admission, with_retry
from penstock.server.answer_bytes import refusal, render_answer, render_headers
from penstock.server.exchange import ConnectionLimits, Exchange
from penstock.server.reading import ReadingProtocol
from penstock.wire.http import Request, Response

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

_log = logging.getLogger(__name__)

Answer = Callable[[Request], Coroutine[Any, Any, Response]]
"""Answers one request. Cancelled when the client goes away; then it takes back what it did for that client alone."""

Reply = Callable[[Response | Coroutine[Any, Any, Response]], None]
"""Takes the answer to a request that was begun, or what makes it."""

Begin = Callable[[Request, Reply], bool]
"""Begins to answer one request without a task, if it can; False says that nothing was done. `Reply` is called once.

Should the client go away, what was begun goes on, and its answer is taken back."""


class FastPath(ReadingProtocol):
    """One connection. SQS requests are answered here, in order, and all others by the ASGI application.

    - Answers come in the order of the requests. While one is being answered, a bounded number is read ahead.
    - A client that closes its side is gone, even if it could still read: nothing tells the two apart, and a waiting
      receive must not lease messages for somebody who left.
    - An answer counts as delivered once the operating system has taken all of it. If that does not come about,
      `Response.undelivered` is awaited. (Over TLS, once the TLS layer has taken it.)
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        answer: Answer,
        begin: Begin | None = None,
        limits: ConnectionLimits,
        admission: Admission,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop, limits, admission)
        self._answer = answer
        self._begin = begin
        self._ahead_bytes = 0
        self._unsettled: tuple[Exchange, Callable[[], Awaitable[None]] | None] | None = None
        self._stopping = False
        self._client_left = False
        self._common_of: object = None
        self._common = ""
        self._linger: asyncio.TimerHandle | None = None
        self._turned_away = False

    # -- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience.start()
        peers = self._admission.peers
        if peers is not None and not peers.allow(transport.get_extra_info("socket")):
            self._refuse_with(refusal(403, "The user of this process may not use this store."))
        elif len(self.connections) > self._admission.connections_max:
            self._turn_away()

    def _turn_away(self) -> None:
        """Refuse a connection that is one too many. It is not counted among those that are served."""
        self._turned_away = True
        self.connections.discard(self)
        admission = self._admission
        admission.note_refused_connection()
        admission.lingering += 1
        if admission.lingering > LINGERING_MAX:
            self._limits = msgspec.structs.replace(self._limits, linger_s=0)
        self._refuse_with(with_retry(refusal(503, f"There are {admission.connections_max} connections already.")))

    def eof_received(self) -> None:
        """Take the client for gone; the transport closes itself, and `connection_lost` follows."""
        self._client_left = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        self._patience.close()
        self._memory.close()
        if self._turned_away:
            self._admission.lingering -= 1
        if self._linger is not None:
            self._linger.cancel()
        self.pipeline.clear()
        self.flow.resume_writing()
        current, self._current = self._current, None
        if isinstance(current, Exchange):
            if current.task is not None and current.response is None:
                # Cancelled before its first step, it would have no chance to sign off by itself.
                current.task.add_done_callback(self.tasks.discard)
                current.task.cancel()
        elif current is not None and not current.response_complete:
            current.disconnected = True
            current.message_event.set()
        if self._unsettled is not None:
            (_, undelivered), self._unsettled = self._unsettled, None
            # A transport that closed in good order after the client's end of file has written everything.
            if undelivered is not None and not (exc is None and self._client_left):
                self._in_background(self._give_back(undelivered))
        # It holds us as we hold it, and nobody shall wait for the garbage collector.
        self.parser = None  # type: ignore[assignment]

    def shutdown(self) -> None:
        """Answer what has been read whole, and close after that."""
        self._stopping = True
        if self._current is None:
            self.transport.close()
        elif not isinstance(self._current, Exchange):
            self._current.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._patience.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unsettled is not None:
            self._settle()
        elif self._current is not None and not self._in_message:
            self._patience.stop()

    # -- answering --------------------------------------------------------------------------------

    def _enter(self, exchange: Exchange) -> None:
        """Answer at once, or after those who came first."""
        self.cycle = exchange  # type: ignore[assignment]  # uvicorn only asks whether it is complete.
        if not exchange.keep_alive:
            self._deaf = True
            self._read_bytes = 0
        if self._current is None:
            self._start(exchange)
            return
        self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]
        self._ahead_bytes += exchange.body_bytes
        if self._far_ahead():
            self.flow.pause_reading()

    def _far_ahead(self) -> bool:
        limits = self._limits
        return len(self.pipeline) >= limits.pipeline_requests_max or self._ahead_bytes >= limits.body_bytes_max

    def _start(self, exchange: Exchange) -> None:
        self._current = exchange
        request = exchange.request
        if request is None or exchange.response is not None:
            assert exchange.response is not None
            self._write(exchange, exchange.response, self._render(exchange, exchange.response))
        elif self._begin is None or not self._begin(request, functools.partial(self._reply, exchange)):
            self._make(exchange, self._answer(request))

    def _reply(self, exchange: Exchange, answer: Response | Coroutine[Any, Any, Response]) -> None:
        """Write an answer that was begun, or have it made; unless its client is gone."""
        gone = self._current is not exchange or self.transport.is_closing()
        if not isinstance(answer, Response):
            if gone:
                answer.close()
            else:
                self._make(exchange, answer)
        elif not gone:
            exchange.response = answer
            self._write(exchange, answer, self._render(exchange, answer))
        elif answer.undelivered is not None:
            self._in_background(self._give_back(answer.undelivered))

    def _make(self, exchange: Exchange, answer: Coroutine[Any, Any, Response]) -> None:
        exchange.task = task = self.loop.create_task(self._run(exchange, answer))
        self.tasks.add(task)

    async def _run(self, exchange: Exchange, answer: Coroutine[Any, Any, Response]) -> None:
        try:
            try:
                exchange.response = response = await answer
                rendered = self._render(exchange, response)
            except Exception:  # noqa: BLE001 - the outermost edge: a bug costs one answer, not the connection
                request = exchange.request
                assert request is not None
                _log.exception("A request failed, which is a bug: %s %s", request.method, request.path)
                exchange.response = response = refusal(500, "The server failed.")
                rendered = self._render(exchange, response)
            if not self.transport.is_closing():
                self._write(exchange, response, rendered)
            elif response.undelivered is not None:
                await self._give_back(response.undelivered)
        except asyncio.CancelledError:
            # The client left; or the server's patience is at an end, and the client is not left hanging.
            self.transport.abort()
            raise
        finally:
            self.tasks.discard(exchange.task)

    def _render(self, exchange: Exchange, response: Response) -> bytes:
        if self._stopping and not self.pipeline:
            exchange.keep_alive = False
        if self._common_of is not self.server_state.default_headers:
            self._common_of = self.server_state.default_headers
            self._common = render_headers(self.server_state.default_headers)
        if exchange.for_pages:
            response.headers = [*response.headers, *exchange.for_pages]
        with_body = exchange.request is None or exchange.request.method != "HEAD"
        return render_answer(response, self._common, exchange.keep_alive, exchange.chunks, with_body)

    def _write(self, exchange: Exchange, response: Response, rendered: bytes) -> None:
        transport = self.transport
        transport.write(rendered)
        # What a transport can write at once it does, and its buffer is empty then; or, if that failed, it is closing.
        if not self.flow.write_paused and (
            response.undelivered is None or not (transport.get_write_buffer_size() or transport.is_closing())
        ):
            self._complete(exchange)
        else:
            self._unsettled = (exchange, response.undelivered)
            self.loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Go on if the answer is out of our hands; otherwise wait for the client to read, or `connection_lost`."""
        # The buffer of a transport that is closing may be empty because it was thrown away: `connection_lost` knows.
        if self._unsettled is None or self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() > 0:
            self._patience.start()
            # With these limits the transport tells when its buffer is empty.
            self.transport.set_write_buffer_limits(high=0)
            return
        (exchange, _), self._unsettled = self._unsettled, None
        self.transport.set_write_buffer_limits()
        if not self._in_message:
            self._patience.stop()
        self._complete(exchange)

    def _complete(self, exchange: Exchange) -> None:
        exchange.response_complete = True
        self._memory.free(exchange.held_bytes)
        if exchange.keep_alive:
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self._current = None
        if exchange.request is not None:
            self.transport.close()
            return
        # Closing on data that nobody has read would wipe out the answer on its way, so the client may finish first.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._linger = self.loop.call_later(self._limits.linger_s, self.transport.abort)

    def on_response_complete(self) -> None:
        """Take up the next request, if it is there already. uvicorn's cycles call this too."""
        self.server_state.total_requests += 1
        if self._cycle_bytes:
            self._memory.free(self._cycle_bytes.pop(self._current, 0))  # type: ignore[arg-type]  # Or there is none.
            if self._in_message and not self._fast and self.cycle is self._current:
                self._message_bytes = 0  # The rest of the request is still to come.
        self._current = None
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._take_next()
        elif self._stopping:
            self.transport.close()
        elif not self._in_message:
            self._patience.start()
        if self.flow.read_paused and not self._far_ahead():
            self.flow.resume_reading()

    def _take_next(self) -> None:
        cycle, app = self.pipeline.pop()
        if isinstance(cycle, Exchange):
            self._ahead_bytes -= cycle.body_bytes
            self._start(cycle)
        else:
            self._current = cycle
            self._in_background(cycle.run_asgi(app))

    async def _give_back(self, undelivered: Callable[[], Awaitable[None]]) -> None:
        try:
            await undelivered()
        except Exception:  # noqa: BLE001 - as in `_run`
            _log.exception("What a client never got could not be taken back")

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _give_up(self) -> None:
        # Whatever was written and not read is not going to be, even if the client closed its side in good order.
        self._client_left = False
        self.transport.abort()


def fast_path(
    answer: Answer,
    limits: ConnectionLimits | None = None,
    begin: Begin | None = None,
    admission: Admission | None = None,
) -> type[asyncio.Protocol]:
    """Make the class that uvicorn takes as its `http`, with `begin` and else `answer` for SQS requests."""
    # uvicorn only calls it, so something that makes instances is as good as a class.
    made: Any = functools.partial(
        FastPath, answer=answer, begin=begin, limits=limits or ConnectionLimits(), admission=admission or Admission()
    )
    return made  # type: ignore[no-any-return]
