"""The blocking transport: plain sockets and no thread of its own, so that there is nothing for a fork to lose."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from typing import TYPE_CHECKING

from penstock.client import forking
from penstock.client.errors import Closed, ConnectionFailed, DeadlineExceeded, TransportError
from penstock.client.transport.dialing import failure
from penstock.client.transport.http1 import READ_BYTES, AnswerReader, head_lines, request_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.transport.dialing import Dialer
    from penstock.client.transport.http1 import Answer, Outgoing
    from penstock.client.transport.peer import Peer

IDLE_MAX = 32
"""How many connections are kept for the next calls. There are never more in use than threads that call."""
STALE_S = 1.0
"""After this long without use, a connection is looked at before it is used again: the server may have closed it."""


class Connection:
    """One connection, used by one thread at a time. It is in `opened` until it is closed."""

    def __init__(self, dialer: Dialer, connected: socket.socket, deadline: float, opened: set[Connection]) -> None:
        self.dialer = dialer
        self.used = False
        self._reader = AnswerReader()
        self._shared = ("", "")
        self._idle_since = 0.0
        self._socket = connected
        if dialer.tls is not None:
            try:
                connected.settimeout(_left(deadline))
                self._socket = dialer.tls.wrap_socket(connected, server_hostname=dialer.server_name)
            except OSError as error:
                connected.close()
                raise failure(dialer, error) from error
        self._opened = opened
        opened.add(self)

    def exchange(self, request: Outgoing, token: str, deadline: float) -> Answer:
        """Send a request and return its answer. The connection is of no use after an error."""
        reader = self._reader
        reader.begin()
        self._send(request, token, deadline)
        while not reader.whole:
            self._read(deadline)
        self.used = True
        self._idle_since = time.monotonic()
        return reader.answer()

    def open_stream(self, request: Outgoing, token: str, deadline: float) -> tuple[int, list[bytes]]:
        """Send a request and return the status of its answer, with what has come of the body."""
        parts: list[bytes] = []
        reader = self._reader
        reader.begin(parts.append)
        self._send(request, token, deadline)
        while not reader.status:
            self._read(deadline)
        return reader.status, parts

    def read_stream(self, deadline: float) -> bool:
        """Read on, and return whether there is more to come."""
        if not self._reader.whole:
            self._read(deadline)
        return not self._reader.whole

    @property
    def reusable(self) -> bool:
        """Whether the answer was read to its end, and the server keeps the connection open."""
        return self._reader.whole and self._reader.keep

    @property
    def begun(self) -> bool:
        """Whether any byte of the present answer has come."""
        return self._reader.begun

    def fresh(self) -> bool:
        """Return whether the server still seems to be there."""
        if time.monotonic() - self._idle_since < STALE_S:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        # Nothing is expected, so whatever there is to read is the end.
        return not poll.poll(0)

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def end(self) -> None:
        """Have the thread that waits on it see its end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this process's end. Another process that has it, too, can go on with it: nothing is sent."""
        self._opened.discard(self)
        with contextlib.suppress(OSError):
            self._socket.close()

    def _send(self, request: Outgoing, token: str, deadline: float) -> None:
        if self._shared[0] != token or not self._shared[1]:
            self._shared = (token, head_lines(self.dialer.authority, token))
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(request_bytes(request, self._shared[1]))
        except OSError as error:
            raise failure(self.dialer, error) from error

    def _read(self, deadline: float) -> None:
        try:
            self._socket.settimeout(_left(deadline))
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise failure(self.dialer, error) from error
        if not data:
            raise ConnectionFailed(f"{self.dialer.name} closed the connection before the answer was whole.")
        self._reader.feed(data)


class BlockingTransport:
    """Sends requests over connections that are kept open. Many threads may use it, before and after a fork."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        # To add to them, take from them and copy them is atomic: there is no lock that a fork could leave locked.
        self._idle: deque[Connection] = deque()
        self._opened: set[Connection] = set()
        self._closed = False
        forking.register(self)

    def exchange(self, request: Outgoing, deadline: float) -> Answer:
        """Return the whole answer to a request; raises a `TransportError` if none comes by the deadline."""
        token = self.peer.token()
        connection = self._connection(deadline)
        reused = connection.used
        try:
            answer = connection.exchange(request, token, deadline)
        except ConnectionFailed as error:
            self._lost(connection)
            error.at_once = reused and not connection.begun
            raise
        except DeadlineExceeded:
            self._lost(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return answer

    @contextlib.contextmanager
    def stream(self, request: Outgoing, deadline: float, silence_s: float) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Open an answer that goes on: its status, and its parts as they come. Silence for too long is an error."""
        token = self.peer.token()
        connection = self._connection(deadline)
        try:
            status, parts = connection.open_stream(request, token, deadline)
            yield status, _parts(connection, parts, silence_s)
        except TransportError:
            self._lost(connection)
            raise
        finally:
            if connection.reusable:
                self._keep(connection)
            else:
                connection.close()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close what is idle, and end what is in use: calls that wait raise `Closed`."""
        self._closed = True
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()
        for connection in self._opened.copy():
            connection.end()

    def descriptors(self) -> list[int]:
        """Return those of all connections, idle or in use."""
        return [connection.fileno() for connection in self._opened]

    def forget(self) -> None:
        """Connect anew, in a forked child."""
        self._idle.clear()
        for connection in self._opened.copy():
            connection.close()

    def _connection(self, deadline: float) -> Connection:
        while True:
            self._refuse_if_closed()
            try:
                # The one used last, so that those of a burst are left to end.
                connection = self._idle.pop()
            except IndexError:
                return self._dial(deadline)
            if connection.dialer is self.peer.current and connection.fresh():
                return connection
            connection.close()

    def _dial(self, deadline: float) -> Connection:
        connection = Connection(*self.peer.dial(deadline), deadline, self._opened)
        try:
            self._refuse_if_closed()
        except Closed:
            connection.close()
            raise
        return connection

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Closed("This Penstock was closed before the call was answered.")

    def _keep(self, connection: Connection) -> None:
        if connection.reusable and not self._closed and len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def _lost(self, lost: Connection) -> None:
        """Close a connection that broke, and all idle ones to the same server."""
        lost.close()
        self.peer.failed(lost.dialer)
        for _ in range(len(self._idle)):
            try:
                connection = self._idle.popleft()
            except IndexError:
                return
            if connection.dialer is lost.dialer:
                connection.close()
            else:
                self._idle.append(connection)


def _parts(connection: Connection, parts: list[bytes], silence_s: float) -> Iterator[bytes]:
    more = True
    while True:
        yield from parts
        parts.clear()
        if not more:
            return
        more = connection.read_stream(time.monotonic() + silence_s)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
