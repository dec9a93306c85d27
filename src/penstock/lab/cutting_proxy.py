"""A proxy on loopback that cuts connections after the server has answered and before its client learns of it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

TIMEOUT_S = 75.0
"""Longer than any long poll, and than its client waits."""
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
_PART_BYTES = 65_536


class ProxyBroken(RuntimeError):
    """Something went through the proxy that is no HTTP message of a size that SQS knows."""


class CuttingProxy:
    """Passes whole requests and answers on, but for as many answers as `cut_next` was told to cut.

    Clients use it as an HTTP proxy, so that the host that they sign is that of the endpoint. It speaks TLS to the
    endpoint where that has it. An answer that is cut was read to its end: the server has committed, and believes that
    it was heard.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = urlsplit(endpoint)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._left = 0
        self._cut: list[bytes] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections; raises what went wrong in one of them."""
        # Shut down first: a close alone does not wake a thread that waits on it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    def cut_next(self, count: int) -> None:
        """Cut so many of the next answers."""
        self._left = count

    def taken(self) -> bytes | None:
        """Return the body of the oldest answer that was cut, once; None if none was."""
        return body_of(self._cut.pop(0)) if self._cut else None

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
        host, tls = self._endpoint.hostname or "", self._endpoint.scheme == "https"
        server = socket.create_connection((host, self._endpoint.port or (443 if tls else 80)), timeout=TIMEOUT_S)
        return ssl.create_default_context().wrap_socket(server, server_hostname=host) if tls else server

    def _serve(self, client: socket.socket) -> None:
        with client:
            client.settimeout(TIMEOUT_S)
            # Either side may end the connection between two requests, or be ended with the proxy.
            with contextlib.suppress(OSError):
                self._pass_on(client)

    def _pass_on(self, client: socket.socket) -> None:
        with self._connect() as server:
            self._sockets += [client, server]
            try:
                while request := read_message(client):
                    server.sendall(_origin_form(request))
                    answer = read_message(server)
                    if self._left and answer:
                        self._left -= 1
                        self._cut.append(answer)
                        return
                    client.sendall(answer)
            except (ProxyBroken, ValueError) as error:
                self._failure = error


def read_message(connection: socket.socket) -> bytes:
    """Read one whole HTTP message with all its framing; b"" if none comes any more."""
    read = b""
    while _missing(read):
        part = connection.recv(_PART_BYTES)
        if not part:
            return b""
        read += part
        if len(read) > MESSAGE_BYTES_MAX:
            raise ProxyBroken(f"A message of more than {MESSAGE_BYTES_MAX} bytes.")
    return read


def body_of(message: bytes) -> bytes:
    """Return the body of a message, without the framing of chunks."""
    head, _, body = message.partition(b"\r\n\r\n")
    if not _chunked(head):
        return body
    parts = []
    while size := int(body.partition(b"\r\n")[0], 16):
        start = body.index(b"\r\n") + 2
        parts.append(body[start : start + size])
        body = body[start + size + 2 :]
    return b"".join(parts)


def _missing(read: bytes) -> bool:
    """Return whether more of a message is to come."""
    head, end, body = read.partition(b"\r\n\r\n")
    if not end:
        return True
    if not _chunked(head):
        return len(body) < int(_field(head, b"content-length") or b"0")
    while True:
        line, found, rest = body.partition(b"\r\n")
        if not found:
            return True
        size = int(line.partition(b";")[0], 16)
        if len(rest) < size + 2:
            return True
        if size == 0:
            return False
        body = rest[size + 2 :]


def _chunked(head: bytes) -> bool:
    return _field(head, b"transfer-encoding") == b"chunked"


def _field(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.strip().lower() == name:
            return value.strip().lower()
    return None


def _origin_form(request: bytes) -> bytes:
    """Write a request to a proxy as the server wants it: with a path instead of a whole URL."""
    line, _, rest = request.partition(b"\r\n")
    method, target, version = line.split(b" ")
    if target.startswith(b"http"):
        parts = urlsplit(target.decode())
        target = (parts.path or "/").encode() + (f"?{parts.query}".encode() if parts.query else b"")
    return b" ".join((method, target, version)) + b"\r\n" + rest
