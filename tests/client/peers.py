"""Servers that misbehave as a test wants: each answers requests with bytes that were made up."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

Script = Callable[[bytes, int], bytes | None]
"""Makes the answer to a request, given it and how many came before it; None closes the connection instead."""


class LastBytes(bytes):
    """What is sent before the connection is closed."""


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def problem(name: str, status: str, extra: str = "") -> bytes:
    code = status.split(maxsplit=1)[0]
    text = f'{{"type":"urn:penstock:problem:{name}","title":"t","status":{code},"detail":"d"{extra}}}'
    return answer(text.encode(), status)


class ScriptedServer:
    """Answers each request by a script, on loopback or on a Unix socket; counts connections and keeps the requests."""

    def __init__(self, script: Script, *, path: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            port = self._listener.getsockname()[1]
            self.url = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self._listener.listen()
            self.url = f"unix:{path}"
        self.connections = 0
        self.ended = threading.Semaphore(0)
        """Released each time that a client has closed a connection."""
        self.asked = threading.Semaphore(0)
        """Released at each request."""
        self.requests: list[bytes] = []
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close all connections."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as closing:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            closing.enter_context(connection)
            self._open.append(connection)
            while (request := _read_request(connection)) is not None:
                self.requests.append(request)
                self.asked.release()
                made = self._script(request, len(self.requests) - 1)
                if made is None:
                    return
                connection.sendall(made)
                if isinstance(made, LastBytes):
                    return
            self.ended.release()


def _read_request(connection: socket.socket) -> bytes | None:
    read = b""
    while b"\r\n\r\n" not in read:
        part = connection.recv(65_536)
        if not part:
            return None
        read += part
    head, _, body = read.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body
