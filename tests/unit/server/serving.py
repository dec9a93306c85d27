"""A server in the test's own process, an endpoint that does as the test says, and a client that speaks raw HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, Self

import msgspec

from penstock.server.admission import Admission
from penstock.server.exchange import ConnectionLimits
from penstock.server.fast_path import Reply
from penstock.server.http_server import HttpServer
from penstock.wire.http import Request, Response

Handler = Callable[[Request], Awaitable[Response]]


class Desk:
    """An endpoint. A path without a handler of its own is answered with the request's body."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.begun: dict[str, asyncio.Future[Reply]] = {}
        """By path: requests to such a one are begun without a task, and how to reply is told here."""
        self.requests: list[Request] = []

    def begin(self, request: Request, reply: Reply) -> bool:
        begun = self.begun.get(request.path)
        if begun is None or begun.done():
            return False
        begun.set_result(reply)
        return True

    async def answer(self, request: Request) -> Response:
        self.requests.append(request)
        handler = self.handlers.get(request.path)
        return Response(body=request.body) if handler is None else await handler(request)


class Waiting:
    """A handler that waits until it is told to go on, and tells when it was called and when cancelled."""

    def __init__(self, response: Response | None = None) -> None:
        self.called = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.response = response or Response(body=b"waited")

    async def __call__(self, request: Request) -> Response:
        self.called.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self.response


class TakenBack:
    """An answer's `undelivered`, which tells that it was awaited."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def __call__(self) -> None:
        self.event.set()


class Answer(msgspec.Struct):
    """An answer as a client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection, on which a test writes bytes and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def read(self) -> Answer:
        """Read one whole answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        if headers.get("transfer-encoding") == "chunked":
            body = await self._read_chunks()
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split(" ")[1]), headers, body)

    async def _read_chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        assert await self.reader.readline() == b"\r\n"
        return body

    async def ask(self, *parts: bytes) -> Answer:
        self.write(*parts)
        return await self.read()

    async def at_end(self) -> bool:
        """Wait for the server to close the connection or to send more; tell whether it closed."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Vanish without a farewell, as a killed machine or a cut cable does."""
        plain: socket.socket = self.writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Served:
    """A running server and its clients."""

    def __init__(self, server: HttpServer, port: int, running: asyncio.Task[None]) -> None:
        self.server = server
        self.port = port
        self.running = running
        self._clients: list[Client] = []

    async def connect(self, *, tls: ssl.SSLContext | None = None, receive_bytes: int | None = None) -> Client:
        """Open a connection; `receive_bytes` makes one whose side takes little at a time."""
        plain = socket.socket()
        plain.setblocking(False)
        if receive_bytes is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port))
        named: dict[str, Any] = {} if tls is None else {"ssl": tls, "server_hostname": "localhost"}
        reader, writer = await asyncio.open_connection(sock=plain, limit=receive_bytes or 2**16, **named)
        client = Client(reader, writer)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        self.server.stop()
        await self.running

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Serve(Protocol):
    """Starts a server."""

    async def __call__(
        self,
        *,
        limits: ConnectionLimits | None = None,
        admission: Admission | None = None,
        tls: tuple[str, str] | None = None,
    ) -> Served: ...


async def small_application(scope: Any, receive: Any, send: Any) -> None:
    """Answer any request with its path, once its body is read; at `/early` before."""
    body = b""
    while scope["path"] != "/early":
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body += event["body"]
        if not event["more_body"]:
            break
    answer = scope["path"].encode() + b" " + body
    length = (b"content-length", str(len(answer)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length, (b"x-by", b"asgi")]})
    await send({"type": "http.response.body", "body": answer})


@contextlib.asynccontextmanager
async def serving(
    desk: Desk,
    *,
    limits: ConnectionLimits | None = None,
    admission: Admission | None = None,
    tls: tuple[str, str] | None = None,
) -> AsyncIterator[Served]:
    """Serve on a port of this machine for the length of the block."""
    ready = asyncio.Event()
    server = HttpServer(
        desk.answer,
        small_application,
        begin=desk.begin,
        limits=limits,
        admission=admission,
        ready=ready.set,
        tls=tls,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await ready.wait()
        async with Served(server, listener.getsockname()[1], running) as served:
            yield served


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    """Write a request."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def get(path: str, *headers: str) -> bytes:
    """Write a request without a body."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()
