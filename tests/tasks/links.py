"""A way to a server that can be stopped and cut: a TCP proxy on loopback."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self
from urllib.parse import urlsplit

PATIENCE_S = 60.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Connection:
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.request = b""
        """The beginning of the last request on it."""

        self.severed = False
        """Whether the client's end is cut, and the server does not know."""

    def reset(self, *, unnoticed: bool) -> None:
        """End both without a word, or only the client's end."""
        self.severed = unnoticed
        for end in (self.client,) if unnoticed else (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                end.shutdown(socket.SHUT_RDWR)


class Link:
    """Passes bytes on between clients and a server.

    `hold` stops requests that begin in a certain way, or everything in both directions: connections stay open, nothing
    is lost, and all of it goes on with `let_go`. `cut` ends connections.
    """

    def __init__(self, server_url: str) -> None:
        address = urlsplit(server_url)
        assert address.hostname is not None
        assert address.port is not None
        self._server = (address.hostname, address.port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._changed = threading.Condition()
        self._held: bytes | None = None
        self._connections: list[_Connection] = []
        self.cuts = 0
        """How many connections were cut."""
        self.holding = 0
        """How many requests are held now."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._held = None
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            left = list(self._connections)
        for connection in left:
            connection.severed = False
            self._end(connection)

    def hold(self, beginning: bytes = b"") -> None:
        """Hold requests that begin so, and with no beginning all bytes of both directions."""
        with self._changed:
            self._held = beginning

    def let_go(self) -> None:
        """Pass everything on, what was held first."""
        with self._changed:
            self._held = None
            self._changed.notify_all()

    def cut(self, beginning: bytes = b"", *, unnoticed: bool = False) -> int:
        """End the connections whose last request begins so; return how many there were.

        `unnoticed` leaves the server with connections that it takes to be open.
        """
        with self._changed:
            found = [one for one in self._connections if one.request.startswith(beginning)]
        for connection in found:
            connection.reset(unnoticed=unnoticed)
        self.cuts += len(found)
        return len(found)

    def wait_until_holding(self) -> None:
        """Wait until a request is held."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.holding, PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server, timeout=PATIENCE_S)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(client, server)
            with self._changed:
                self._connections.append(connection)
            for work in (self._ask, self._answer):
                threading.Thread(target=work, args=(connection,), daemon=True).start()

    def _ask(self, connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            while data := connection.client.recv(65_536):
                if data.startswith((b"POST ", b"GET ", b"PUT ")):
                    connection.request = data[:80]
                self._pass(connection.request)
                connection.server.sendall(data)
        self._end(connection)

    def _answer(self, connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            while data := connection.server.recv(65_536):
                self._pass(b"")
                with contextlib.suppress(OSError):
                    connection.client.sendall(data)
        self._end(connection)

    def _pass(self, request: bytes) -> None:
        """Wait while bytes of this request are held."""
        with self._changed:
            if self._held is not None and request.startswith(self._held):
                self.holding += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._held is None or not request.startswith(self._held))
                self.holding -= 1

    def _end(self, connection: _Connection) -> None:
        with self._changed:
            if connection.severed or connection not in self._connections:
                return
            self._connections.remove(connection)
        for end in (connection.client, connection.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
