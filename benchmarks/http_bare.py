"""The limit in Python: a bare handler on uvloop and httptools that reads a SendMessage and answers, storing nothing.

It is a process of its own (`python -m benchmarks.http_bare`), which prints its address once it takes requests.
"""

from __future__ import annotations

import asyncio
import sys
from hashlib import md5

import httptools
import msgspec

from benchmarks.process import run
from penstock.domain.ids import OrderedIds
from penstock.wire.sqs import shapes

_decode = msgspec.json.Decoder(shapes.SendMessageRequest).decode
_encode = msgspec.json.Encoder().encode
_new_id = OrderedIds().new_id
_TARGET = b"AmazonSQS.SendMessage"
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\nx-amzn-RequestId: %b\r\ncontent-length: %d\r\n\r\n"
)
_REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"


class BareHandler(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body = b""

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._headers = {}
        self._body = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._headers.get(b"x-amz-target") != _TARGET:
            self._transport.write(_REFUSAL)
            return
        request = _decode(self._body)
        digest = md5((request.message_body or "").encode(), usedforsecurity=False).hexdigest()
        body = _encode(shapes.SendMessageResult(md5_of_message_body=digest, message_id=_new_id()))
        self._transport.write(_HEAD % (_new_id().encode(), len(body)) + body)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(BareHandler, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"ready at http://127.0.0.1:{port}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    run(_serve())
