"""A proxy on loopback that cuts connections after the server has answered and before its client learns of it."""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from typing import Self
from urllib.parse import urlsplit

TIMEOUT_S = 30.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Cut(enum.Enum):
    """How a connection ends: in good order, or as after a crash."""

    CLOSE = enum.auto()
    RESET = enum.auto()


class CuttingProxy:
    """Passes requests and answers on, whole ones at a time, but for as many answers as `cut_next` was told to cut.

    An answer that is cut has been read to its end, so the server has committed, and has handed the answer over.
    """

    def __init__(self, server_url: str) -> None:
        self.server_url = server_url
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._cuts: list[Cut] = []
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.cut_answers: list[bytes] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # Shut down first: a close alone does not wake a thread that waits on it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def cut_next(self, *cuts: Cut) -> None:
        """Cut the connections of this many of the next answers."""
        self._cuts.extend(cuts)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # The listener was closed.
            self._start(self._serve, client)

    def _connect(self) -> socket.socket:
        address = urlsplit(self.server_url)
        if address.scheme == "unix":
            server = socket.socket(socket.AF_UNIX)
            server.settimeout(TIMEOUT_S)
            server.connect(address.path)
            return server
        assert address.hostname is not None
        return socket.create_connection((address.hostname, address.port), timeout=TIMEOUT_S)

    def _serve(self, client: socket.socket) -> None:
        with client, self._connect() as server:
            self._connections += [client, server]
            while True:
                # Either side may end the connection between two requests, or be ended with the proxy.
                try:
                    request = read_message(client)
                    if not request:
                        return
                    server.sendall(request)
                    answer = read_message(server)
                    if self._cuts:
                        self.cut_answers.append(answer)
                        if self._cuts.pop(0) is Cut.RESET:
                            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                        return
                    client.sendall(answer)
                except OSError:
                    return


def read_message(connection: socket.socket) -> bytes:
    """Read one whole HTTP message with all its framing; b"" if none comes any more."""
    read = b""
    while (missing := _missing(read)) != 0:
        part = connection.recv(65_536 if missing is None else max(missing, 65_536))
        if not part:
            return b""
        read += part
    return read


def body_of(message: bytes) -> bytes:
    """Return the body of a message, without the framing of chunks."""
    head, _, body = message.partition(b"\r\n\r\n")
    if b"\r\ntransfer-encoding: chunked" not in head.lower():
        return body
    parts = []
    while size := int(body.partition(b"\r\n")[0], 16):
        start = body.index(b"\r\n") + 2
        parts.append(body[start : start + size])
        body = body[start + size + 2 :]
    return b"".join(parts)


def _missing(read: bytes) -> int | None:
    """Return how many bytes of a message are still to come; None if that is not known yet."""
    head, end, body = read.partition(b"\r\n\r\n")
    if not end:
        return None
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    if fields.get(b"transfer-encoding") != b"chunked":
        return int(fields.get(b"content-length", b"0")) - len(body)
    while True:
        line, found, rest = body.partition(b"\r\n")
        if not found:
            return None
        size = int(line, 16)
        if len(rest) < size + 2:
            return size + 2 - len(rest)
        if size == 0:
            return 0
        body = rest[size + 2 :]
