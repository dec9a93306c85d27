"""The asyncio transport: pooled connections, one pool for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from penstock.client.errors import AnswerInvalid, ConnectionFailed, DeadlineExceeded, TransportError
from penstock.client.transport.dialing import failure
from penstock.client.transport.http1 import AnswerReader, head_lines, request_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from penstock.client.transport.dialing import Dialer
    from penstock.client.transport.http1 import Answer, Outgoing
    from penstock.client.transport.peer import Peer

CONNECTIONS_MAX = 100
"""How many calls of one event loop are under way at once; more wait for their turn. Streams are not counted."""
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
        if self._fault is not None:
            raise self._fault
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(max(deadline - time.monotonic(), 0), self._late)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
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


class Pool:
    """The connections of one event loop."""

    def __init__(self, peer: Peer) -> None:
        self.pid = os.getpid()
        self._peer = peer
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._sockets: dict[Connection, socket.socket] = {}
        self._in_use = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._ending: AsyncGenerator[None] | None = None

    async def exchange(self, request: Outgoing, deadline: float) -> Answer:
        """Return the whole answer to a request."""
        token = self._peer.token()
        await self._enter(deadline)
        try:
            connection = self._take_idle() or await self._connect(deadline)
            reused = connection.used
            try:
                answer = await connection.exchange(request, token, deadline)
            except ConnectionFailed as error:
                self._lost(connection)
                error.at_once = reused and not connection.begun
                raise
            except DeadlineExceeded:
                self._lost(connection)
                raise
            except BaseException:
                connection.abort()
                raise
            self._keep(connection)
            return answer
        finally:
            self._leave()

    @contextlib.asynccontextmanager
    async def stream(
        self, request: Outgoing, deadline: float, silence_s: float
    ) -> AsyncGenerator[tuple[int, AsyncIterator[bytes]]]:
        """Open an answer that goes on: its status, and its parts as they come."""
        token = self._peer.token()
        connection = self._take_idle() or await self._connect(deadline)
        try:
            status = await connection.open_stream(request, token, deadline)
            yield status, _parts(connection, silence_s)
        except TransportError:
            self._lost(connection)
            raise
        finally:
            if connection.reusable:
                connection.rest()
                self._keep(connection)
            else:
                connection.abort()

    async def close(self) -> None:
        """Close all connections."""
        self._idle.clear()
        ending = list(self._open)
        for connection in ending:
            connection.abort()
        for connection in ending:
            await asyncio.wait((connection.lost,))
        if self._ending is not None:
            ended, self._ending = self._ending, None
            await ended.aclose()

    def forget(self) -> None:
        """Close a parent's sockets in a forked child: the loop that they belong to does not run here."""
        for connected in self._sockets.values():
            with contextlib.suppress(OSError):
                connected.close()
        self._sockets.clear()

    async def _enter(self, deadline: float) -> None:
        """Wait for a turn."""
        if self._in_use < CONNECTIONS_MAX and not self._line:
            self._in_use += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await turn  # The turn is handed over with the place of whoever left.
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave()
            else:
                self._line.remove(turn)
            if isinstance(error, TimeoutError):
                message = f"{CONNECTIONS_MAX} calls are under way, and none of them ended in time."
                raise DeadlineExceeded(message) from None
            raise

    def _leave(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._in_use -= 1

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and connection.dialer is self._peer.current:
                return connection
            connection.abort()
        return None

    async def _connect(self, deadline: float) -> Connection:
        if self._ending is None:
            # asyncio.run() closes asynchronous generators when its loop ends, so this one closes the connections.
            self._ending = self._until_loop_ends()
            await anext(self._ending)
        dialer, connected = await _dial(self._peer, deadline)
        loop = asyncio.get_running_loop()
        connection = Connection(dialer)
        connect = loop.create_unix_connection if connected.family == socket.AF_UNIX else loop.create_connection
        tls = {} if dialer.tls is None else {"ssl": dialer.tls, "server_hostname": dialer.server_name}
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await connect(lambda: connection, sock=connected, **tls)
        except OSError as error:
            connected.close()
            raise failure(dialer, error) from error
        except BaseException:
            connected.close()
            raise
        self._open.add(connection)
        self._sockets[connection] = connected
        connection.lost.add_done_callback(lambda _: self._gone(connection))
        return connection

    def _gone(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._sockets.pop(connection, None)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)

    def _keep(self, connection: Connection) -> None:
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.abort()

    def _lost(self, lost: Connection) -> None:
        """Close a connection that broke, and all idle ones to the same server."""
        lost.abort()
        self._peer.failed(lost.dialer)
        for connection in [idle for idle in self._idle if idle.dialer is lost.dialer]:
            self._idle.remove(connection)
            connection.abort()

    async def _until_loop_ends(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._ending = None
            await self.close()


class AsyncTransport:
    """Sends requests from any event loop; each has connections of its own."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = WeakKeyDictionary()

    async def exchange(self, request: Outgoing, deadline: float) -> Answer:
        """Return the whole answer to a request; raises a `TransportError` if none comes by the deadline."""
        return await self._pool().exchange(request, deadline)

    def stream(
        self, request: Outgoing, deadline: float, silence_s: float
    ) -> contextlib.AbstractAsyncContextManager[tuple[int, AsyncIterator[bytes]]]:
        """Open an answer that goes on: its status, and its parts as they come. Silence for too long is an error."""
        return self._pool().stream(request, deadline, silence_s)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.pid != os.getpid():
            for other in self._pools.values():
                if other.pid != os.getpid():
                    other.forget()
            pool = self._pools[loop] = Pool(self.peer)
        return pool


async def _parts(connection: Connection, silence_s: float) -> AsyncIterator[bytes]:
    while part := await connection.read_stream(silence_s):
        yield part


async def _dial(peer: Peer, deadline: float) -> tuple[Dialer, socket.socket]:
    """Dial on a thread: names are looked up, and owners started, by calls that block."""
    loop = asyncio.get_running_loop()
    dialled: asyncio.Future[tuple[Dialer, socket.socket]] = loop.create_future()

    def settle(made: tuple[Dialer, socket.socket] | None, error: BaseException | None) -> None:
        if dialled.done():  # Whoever waited is gone.
            if made is not None:
                made[1].close()
        elif error is not None:
            dialled.set_exception(error)
        elif made is not None:
            dialled.set_result(made)

    def work() -> None:
        made: tuple[Dialer, socket.socket] | None = None
        failed: Exception | None = None
        try:
            made = peer.dial(deadline)
        except Exception as error:  # noqa: BLE001 - it is raised where the call was made
            failed = error
        try:
            loop.call_soon_threadsafe(settle, made, failed)
        except RuntimeError:  # The loop has ended meanwhile.
            if made is not None:
                made[1].close()

    threading.Thread(target=work, name="penstock-dial", daemon=True).start()
    try:
        return await dialled
    except asyncio.CancelledError:
        if not dialled.cancel() and dialled.exception() is None:
            dialled.result()[1].close()
        raise
