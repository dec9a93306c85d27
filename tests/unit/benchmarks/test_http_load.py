"""The load generator against servers that answer in every way that one may."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from benchmarks.errors import WorkFailed
from benchmarks.http_load import Done, Job, Kind, perform

SENT = b'{"MD5OfMessageBody": "x", "MessageId": "y"}'
REQUESTS_MIN = 6
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


def job(port: int, kind: Kind = "send", batch: int = 1, *, seconds: float = 0.1) -> Job:
    return Job(
        port=port,
        pid=os.getpid(),
        queue_url="http://localhost/0/q",
        kind=kind,
        batch=batch,
        connections=3,
        body_bytes=20,
        seconds=seconds,
    )


async def load(port: int, kind: Kind = "send", batch: int = 1) -> Done:
    """Do a job that is long enough to be told of: how long that is, the machine decides."""
    for seconds in (0.1, 1, 10):
        with contextlib.suppress(WorkFailed):  # It had no answer at all, as any job may.
            done = await perform(job(port, kind, batch, seconds=seconds))
            if done.requests > REQUESTS_MIN:
                return done
    pytest.fail("it asked too little")


@pytest.mark.parametrize("pieces", [1, 2, 30])
async def test_it_counts_requests_and_messages(pieces: int) -> None:
    async with serving({b"SendMessageBatch": answer()}, pieces=pieces) as port:
        done = await load(port, batch=10)
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
    assert done.messages == 0


@pytest.mark.parametrize("told", [answer(extra=b"Connection: close\r\n"), answer(status="HTTP/1.0 200 OK")])
async def test_a_server_that_closes_after_each_answer_is_connected_to_again(told: bytes) -> None:
    async with serving({b"SendMessage": told}, close=True) as port:
        done = await load(port)
    assert done.messages == done.requests


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
            await perform(job(port))


async def test_an_entry_that_is_refused_ends_the_job() -> None:
    async with serving({b"SendMessageBatch": answer(b'{"Failed":[{"Id": "1"}]}')}) as port:
        with pytest.raises(WorkFailed, match="refused"):
            await perform(job(port, batch=2))


async def test_a_server_that_is_not_there_ends_the_job() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # Nobody else has this port, and nobody listens there.
        with pytest.raises(ConnectionRefusedError):
            await perform(job(silent.getsockname()[1]))


@pytest.mark.parametrize("pieces", [1, 2, 30])
async def test_an_answer_may_come_in_chunks(pieces: int) -> None:
    half = len(RECEIVED) // 2
    chunks = b"%x\r\n%b\r\n%x;note\r\n%b\r\n0\r\n\r\n" % (half, RECEIVED[:half], len(RECEIVED) - half, RECEIVED[half:])
    told = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    answers = {b"SendMessageBatch": answer(), b"ReceiveMessage": told, b"DeleteMessageBatch": answer(b"{}")}
    async with serving(answers, pieces=pieces) as port:
        done = await load(port, "lifecycle", batch=10)
    assert done.messages % 2 == 0
    assert done.requests - 6 <= 3 * done.messages / 2 <= done.requests


async def test_a_job_ends_with_its_messages() -> None:
    async with serving({b"SendMessageBatch": answer(), b"SendMessage": answer()}) as port:
        done = await perform(msgspec.structs.replace(job(port, batch=10, seconds=60), messages=41))
    assert done.messages == 41
    assert done.requests == 5


async def test_queues_take_turns() -> None:
    seen: list[bytes] = []
    urls = [f"http://localhost/0/queue-{number}" for number in range(4)]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen.append(await reader.readexactly(int(head.rpartition(b"Content-Length: ")[2])))
                writer.write(answer())
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        asked = job(server.sockets[0].getsockname()[1], seconds=60)
        await perform(msgspec.structs.replace(asked, messages=12, queue_urls=urls))
    assert all(sum(url.encode() in body for body in seen) == 3 for url in urls)
