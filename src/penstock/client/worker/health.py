"""A small HTTP endpoint that says whether a worker works: GET /healthz."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

import msgspec

from penstock.client.errors import WorkerInvalid

if TYPE_CHECKING:
    from penstock.client.worker.worker import Worker

REQUEST_S = 5.0
HEAD_BYTES_MAX = 8 * 1024


class Health:
    """Answers 200 while the worker takes jobs, and 503 while it has no connection or stops, with its numbers as JSON.

    It runs on the worker's event loop: if a task blocks that, nothing answers, which is the truth.
    """

    def __init__(self, worker: Worker, address: str) -> None:
        self._worker = worker
        host, _, port = str(address).rpartition(":")
        if not port.isdigit() or not 0 <= int(port) <= 65_535:
            raise WorkerInvalid(f"The address for health is HOST:PORT, such as 127.0.0.1:8081, not {address!r}.")
        self._host = host.strip("[]") or "127.0.0.1"
        self._port = int(port)
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise WorkerInvalid(f"Cannot listen on {self._host}:{self._port} for health: {error.strerror}.") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, *_ = head.split(b" ", 2)
                writer.write(self._answer(method, target.partition(b"?")[0]))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # Whoever asks so gets no answer.
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _answer(self, method: bytes, path: bytes) -> bytes:
        if method not in {b"GET", b"HEAD"}:
            return _response(405, b'{"error":"Method not allowed. Allowed: GET."}')
        if path not in {b"/healthz", b"/"}:
            return _response(404, b'{"error":"Not found. Ask for /healthz."}')
        status = self._worker.status()
        healthy = status.disconnected_s is None and status.stopping_s is None
        body = msgspec.json.encode({"healthy": healthy, "worker": self._worker.name, **msgspec.to_builtins(status)})
        return _response(200 if healthy else 503, b"" if method == b"HEAD" else body)


_PHRASES = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def _response(status: int, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
