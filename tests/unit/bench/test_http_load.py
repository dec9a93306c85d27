"""The load generator against servers that answer in every way that one may."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.bench.errors import WorkFailed
from penstock.bench.http_load import Done, Job, Kind, perform

SENT = b'{"MD5OfMessageBody": "x", "MessageId": "y"}'
RECEIVED = b'{"Messages": [{"ReceiptHandle": "one"}, {"ReceiptHandle":"two"}]}'


def answer(body: bytes = SENT, *, status: str = "HTTP/1.1 200 OK", extra: bytes = b"") -> bytes:
    return b"%b\r\nContent-Length: %d\r\n%b\r\n%b" % (status.encode(), len(body), extra, body)


@asynccontextmanager
async def serving(answers: dict[bytes, bytes], *, pieces: int = 1, close: bool = False) -> AsyncIterator[int]:
    """Answer by what a request's target ends with, in so many pieces, and close after each answer if told so."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = head.partition(b"AmazonSQS.")[2].partition(b"\r")[0]
                await reader.readexactly(int(head.rpartition(b"Content-Length: ")[2]))
                told = answers[target]
                size = -(-len(told) // pieces)
                for start in range(0, len(told), size):
                    writer.write(told[start : start + size])
                    await asyncio.sleep(0)
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def load(port: int, kind: Kind = "send", batch: int = 1) -> Done:
    job = Job(
        port=port,
        pid=os.getpid(),
        queue_url="http://localhost/0/q",
        kind=kind,
        batch=batch,
        connections=3,
        body_bytes=20,
        seconds=0.1,
    )
    return await perform(job)


@pytest.mark.parametrize("pieces", [1, 2, 30])
async def test_it_counts_requests_and_messages(pieces: int) -> None:
    async with serving({b"SendMessageBatch": answer()}, pieces=pieces) as port:
        done = await load(port, batch=10)
    assert done.requests > 3
    assert done.messages == 10 * done.requests
    assert done.latency is not None
    assert 0 < done.latency.p50_ms <= done.latency.max_ms


async def test_a_message_of_a_lifecycle_counts_once_it_is_deleted() -> None:
    answers = {
        b"SendMessageBatch": answer(),
        b"ReceiveMessage": answer(RECEIVED),
        b"DeleteMessageBatch": answer(b"{}"),
    }
    async with serving(answers) as port:
        done = await load(port, "lifecycle", batch=10)
    assert done.messages % 2 == 0
    assert done.requests - 6 <= 3 * done.messages / 2 <= done.requests


async def test_a_receive_that_finds_nothing_is_followed_by_a_send() -> None:
    async with serving({b"SendMessage": answer(), b"ReceiveMessage": answer(b"{}")}) as port:
        done = await load(port, "lifecycle")
    assert done.requests > 6
    assert done.messages == 0


@pytest.mark.parametrize("told", [answer(extra=b"Connection: close\r\n"), answer(status="HTTP/1.0 200 OK")])
async def test_a_server_that_closes_after_each_answer_is_connected_to_again(told: bytes) -> None:
    async with serving({b"SendMessage": told}, close=True) as port:
        done = await load(port)
    assert done.requests > 3


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (answer(status="HTTP/1.1 500 Oh"), "the server answered: b'HTTP/1.1 500 Oh"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "does not tell its length"),
        (answer() + b"more", "the server answered"),
        (answer()[:-1], "closed a connection that waited for an answer"),
    ],
)
async def test_an_answer_that_is_none_ends_the_job(told: bytes, reason: str) -> None:
    async with serving({b"SendMessage": told}, close=True) as port:
        with pytest.raises(WorkFailed, match=reason):
            await load(port)


async def test_an_entry_that_is_refused_ends_the_job() -> None:
    async with serving({b"SendMessageBatch": answer(b'{"Failed":[{"Id": "1"}]}')}) as port:
        with pytest.raises(WorkFailed, match="refused"):
            await load(port, batch=2)


async def test_a_server_that_is_not_there_ends_the_job(unused_tcp_port: int) -> None:
    with pytest.raises(OSError, match=r"."):
        await load(unused_tcp_port)
