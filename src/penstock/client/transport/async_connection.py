"""One connection of the asyncio transport, and how it is dialled."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, cast

from penstock.client.errors import AnswerInvalid, ConnectionFailed, DeadlineExceeded
from penstock.client.transport.dialing import failure
from penstock.client.transport.http1 import AnswerReader, head_lines, request_bytes

if TYPE_CHECKING:
    import socket

    from penstock.client.transport.dialing import Dialer
    from penstock.client.transport.http1 import Answer, Outgoing
    from penstock.client.transport.peer import Peer

    Dialled = tuple[Dialer, socket.socket]

UNREAD_BYTES_MAX = 1024 * 1024
"""How much of a stream is kept for its reader before the socket is no longer read."""


class Connection(asyncio.Protocol):
    """One connection, used by one call at a time."""

    def __init__(self, dialer: Dialer) -> None:
        self.dialer = dialer
        self.used = False
        self.open = True
        self.lost = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._reader = AnswerReader()
        self._shared = ("", "")
        self._waiter: asyncio.Future[None] | None = None
        self._fault: Exception | None = None
        self._streaming = False
        self._paused = False
        self._unread: list[bytes] = []
        self._unread_bytes = 0

    # -- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if self._waiter is None and not self._streaming:
            self.abort()  # Nothing was asked for.
            return
        try:
            reader.feed(data)
        except AnswerInvalid as error:
            self._fault = error
            self.abort()
        if self._streaming or reader.whole or self._fault is not None:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._fault is None and not self._reader.whole:
            self._fault = (
                failure(self.dialer, error)
                if isinstance(error, OSError)
                else ConnectionFailed(f"{self.dialer.name} closed the connection before the answer was whole.")
            )
        self._wake()
        if not self.lost.done():
            self.lost.set_result(None)

    # -- what the transport calls -----------------------------------------------------------------

    async def exchange(self, request: Outgoing, token: str, deadline: float) -> Answer:
        """Send a request and return its answer. The connection is of no use after an error."""
        reader = self._reader
        reader.begin()
        self._send(request, token)
        await self._wait(deadline)
        self.used = True
        return reader.answer()

    async def open_stream(self, request: Outgoing, token: str, deadline: float) -> int:
        """Send a request and return the status of its answer."""
        self._streaming = True
        self._reader.begin(self._take)
        self._send(request, token)
        while not self._reader.status:
            await self._wait(deadline)
        return self._reader.status

    async def read_stream(self, silence_s: float) -> bytes:
        """Return what came since; b"" after the end."""
        while not self._unread and not self._reader.whole:
            await self._wait(time.monotonic() + silence_s)
        parts, self._unread, self._unread_bytes = self._unread, [], 0
        if self._paused and self.open:
            self._paused = False
            self._transport.resume_reading()
        return b"".join(parts)

    @property
    def begun(self) -> bool:
        """Whether any byte of the present answer has come."""
        return self._reader.begun

    @property
    def reusable(self) -> bool:
        """Whether the answer was read to its end, and the server keeps the connection open."""
        return self.open and self._reader.whole and self._reader.keep

    def rest(self) -> None:
        """End a stream that was read to its end, so that the connection can be used for calls."""
        self._streaming = False

    def abort(self) -> None:
        """Close it at once."""
        self.open = False
        self._transport.abort()

    def _send(self, request: Outgoing, token: str) -> None:
        if self._fault is not None:
            raise self._fault
        if self._shared[0] != token or not self._shared[1]:
            self._shared = (token, head_lines(self.dialer.authority, token))
        self._transport.write(request_bytes(request, self._shared[1]))

    def _take(self, part: bytes) -> None:
        self._unread.append(part)
        self._unread_bytes += len(part)
        if self._unread_bytes > UNREAD_BYTES_MAX and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    async def _wait(self, deadline: float) -> None:
        self._raise_fault()
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(max(deadline - time.monotonic(), 0), self._late)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        self._raise_fault()

    def _raise_fault(self) -> None:
        # What is there to be read is read first: the end of the connection is told after it.
        if self._fault is not None and not self._unread:
            raise self._fault

    def _late(self) -> None:
        self._fault = DeadlineExceeded(f"{self.dialer.name} did not answer in time.")
        self._wake()
        self.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def dial(peer: Peer, deadline: float) -> Dialled:
    """Dial on a thread: names are looked up, and owners started, by calls that block."""
    loop = asyncio.get_running_loop()
    dialled: asyncio.Future[Dialled] = loop.create_future()

    def work() -> None:
        try:
            made: Dialled | Exception = peer.dial(deadline)
        except Exception as error:  # noqa: BLE001 - it is raised where the call was made
            made = error
        try:
            loop.call_soon_threadsafe(_settle, dialled, made)
        except RuntimeError:  # The loop has ended meanwhile.
            _discard(made)

    threading.Thread(target=work, name="penstock-dial", daemon=True).start()
    try:
        return await dialled
    except asyncio.CancelledError:
        if not dialled.cancel() and dialled.exception() is None:
            _discard(dialled.result())
        raise


def _settle(dialled: asyncio.Future[Dialled], made: Dialled | Exception) -> None:
    if dialled.done():  # Whoever waited is gone.
        _discard(made)
    elif isinstance(made, Exception):
        dialled.set_exception(made)
    else:
        dialled.set_result(made)


def _discard(made: Dialled | Exception) -> None:
    if not isinstance(made, Exception):
        made[1].close()
