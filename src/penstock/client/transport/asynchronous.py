"""The asyncio transport: pooled connections, one pool for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from penstock.client import forking
from penstock.client.errors import Closed, ConnectionFailed, DeadlineExceeded, TransportError
from penstock.client.transport.async_connection import Connection, dial
from penstock.client.transport.dialing import failure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from penstock.client.transport.http1 import Answer, Outgoing
    from penstock.client.transport.peer import Peer

CONNECTIONS_MAX = 100
"""How many calls of one event loop are under way at once; more wait for their turn. Streams are not counted."""
POLLS_MAX = 1_000
"""Likewise of calls that wait on the server. They take turns of their own, so that they hold up no others."""


class Turns:
    """Lets at most `most` in at a time; others wait in line."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_use = 0
        self._line: deque[asyncio.Future[None]] = deque()

    async def enter(self, deadline: float) -> None:
        """Wait for a turn."""
        if self._in_use < self._most and not self._line:
            self._in_use += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await turn  # The turn is handed over with the place of whoever left.
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave()
            else:
                self._line.remove(turn)
            if isinstance(error, TimeoutError):
                message = f"{self._most} calls are under way, and none of them ended in time."
                raise DeadlineExceeded(message) from None
            raise

    def leave(self) -> None:
        """Give the place to the next in line."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._in_use -= 1


class Pool:
    """The connections of one event loop."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._sockets: dict[Connection, socket.socket] = {}
        self._calls = Turns(CONNECTIONS_MAX)
        self._polls = Turns(POLLS_MAX)
        self._ending: AsyncGenerator[None] | None = None

    async def exchange(self, request: Outgoing, deadline: float) -> Answer:
        """Return the whole answer to a request."""
        token = self._peer.token()
        turns = self._polls if request.waits else self._calls
        await turns.enter(deadline)
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
            turns.leave()

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

    def descriptors(self) -> list[int]:
        """Return those of all connections, idle or in use."""
        return [connected.fileno() for connected in self._sockets.values()]

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
        dialer, connected = await dial(self._peer, deadline)
        loop = asyncio.get_running_loop()
        connection = Connection(dialer)
        tls, name = dialer.tls, dialer.server_name
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                if connected.family == socket.AF_UNIX:
                    await loop.create_unix_connection(lambda: connection, sock=connected, ssl=tls, server_hostname=name)
                else:
                    await loop.create_connection(lambda: connection, sock=connected, ssl=tls, server_hostname=name)
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
        self._closed = False
        forking.register(self)

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

    async def on_thread(self, work: Callable[[], None]) -> None:
        """Do what may block."""
        await asyncio.to_thread(work)

    async def close(self) -> None:
        """Close the connections of this event loop: calls that wait there raise `Closed`."""
        self._closed = True
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def descriptors(self) -> list[int]:
        """Return those of the connections of all event loops."""
        return [descriptor for pool in self._pools.values() for descriptor in pool.descriptors()]

    def forget(self) -> None:
        """Connect anew, in a forked child: the loops of its parent do not run there."""
        _inherited.extend(self._pools.values())
        self._pools.clear()

    def _pool(self) -> Pool:
        if self._closed:
            raise Closed("This Penstock was closed before the call was answered.")
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = Pool(self.peer)
        return pool


_inherited: list[Pool] = []
"""Of a forked child's parent, kept as they are: asyncio would complain about what it takes apart."""


async def _parts(connection: Connection, silence_s: float) -> AsyncIterator[bytes]:
    while part := await connection.read_stream(silence_s):
        yield part
