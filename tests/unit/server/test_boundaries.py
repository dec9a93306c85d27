"""Where the bytes of a connection are cut apart on their way is chance, and decides nothing."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from penstock.server.exchange import ConnectionLimits
from penstock.server.fast_path import FastPath
from tests.unit.server.serving import Answer, Client, Serve, Served, get, post

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [pytest.mark.asyncio(loop_factories=["uvloop"]), pytest.mark.timeout(60, method="thread")]

HEAD_BYTES_MAX = 2_000
LIMITS = ConnectionLimits(head_bytes_max=HEAD_BYTES_MAX, body_bytes_max=20_000, wire_bytes_max=60_000)
UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

REQUESTS = [
    post("/", b"small"),
    post("/", b"large " * 1_500),
    post("/queue/orders", b"with much before it", f"X-Long: {'x' * (HEAD_BYTES_MAX - 500)}"),
    CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n",
    get("/?Action=ListQueues"),
    get("/healthz"),
    post("/stats", b"for the application " * 100),
    post("/", b"other protocol", *UPGRADE),
    b"\r\n\r\n" + post("/", b"after empty lines"),
    b"POST http://localhost:9324/queue/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nform",
]

LAST = [
    b"",
    post("/", b"the last", "Connection: close"),
    b"no request\r\n\r\n",
    post("/", b"", f"X-Long: {'x' * HEAD_BYTES_MAX}"),
    b"POST / HTTP/1.1\r\nX: " + b"x" * 3 * HEAD_BYTES_MAX,
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20001\r\n\r\n",
    CHUNKED + b"4e20\r\n" + b"x" * 20_000 + b"\r\n1\r\nx\r\n",
    CHUNKED + b"zz\r\n",
    b"POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
]
"""With each of these a connection ends."""


async def connect(served: Served) -> tuple[Client, FastPath]:
    """Open a connection, and find the server's end of it, which takes bytes as the test cuts them."""
    before = set(served.server.server_state.connections)
    client = await served.connect()
    await client.ask(get("/healthz"))
    [end] = served.server.server_state.connections - before
    assert isinstance(end, FastPath)
    return client, end


def cut(stream: bytes, places: Sequence[int]) -> Iterator[bytes]:
    for start, stop in zip((0, *places), (*places, len(stream)), strict=True):
        if start < stop:
            yield stream[start:stop]


async def read_all(client: Client) -> list[Answer]:
    answers: list[Answer] = []
    while not client.reader.at_eof():
        try:
            answers.append(await client.read())
        except (asyncio.IncompleteReadError, ConnectionError):
            break
    for answer in answers:
        answer.headers.pop("date", None)
    return answers


async def answers_to(served: Served, pieces: Iterator[bytes]) -> list[Answer]:
    client, end = await connect(served)
    reading = asyncio.create_task(read_all(client))
    for piece in pieces:
        end.data_received(piece)
        # Some come while an answer is being made, and others after it was written.
        await asyncio.sleep(0)
    # A stream that ends in good order is answered to its end, and the server is told only then that nothing follows.
    end.data_received(post("/", b"end of test", "Connection: close"))
    return await reading


@pytest.mark.parametrize("seed", range(9))
async def test_the_answers_are_the_same_wherever_the_bytes_are_cut(serve: Serve, seed: int) -> None:
    chance = random.Random(seed)
    served = await serve(limits=LIMITS)
    requests = chance.choices(REQUESTS, k=8)
    stream = b"".join(requests) + LAST[seed % len(LAST)]
    whole = await answers_to(served, iter([*requests, LAST[seed % len(LAST)]]))
    assert len(whole) > len(requests)
    for pieces in (1, 2, 4, 30, 300):
        places = sorted(chance.choices(range(len(stream)), k=pieces - 1))
        assert await answers_to(served, cut(stream, places)) == whole, places
