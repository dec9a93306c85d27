"""Sends many requests to a server on a few connections, and keeps what it answered with a failure."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.support.fuzzing.http import Credentials, Sent, finish
from tests.support.fuzzing.jobs import JobRequests
from tests.support.fuzzing.sqs import SqsRequests
from tests.support.fuzzing.values import Pool

CONNECTIONS = 6
ANSWER_TIMEOUT_S = 30.0
FAILURES_MAX = 20
_ELEMENT = re.compile(rb"<(\w+)>([^<]{1,2000})</")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Failure(msgspec.Struct):
    """A request, and an answer that nobody should get."""

    number: int
    sent: bytes
    answer: bytes

    def __str__(self) -> str:
        return f"request {self.number}: {self.sent[:3_000]!r}\nanswer: {self.answer[:2_000]!r}"


class Campaign:
    """Makes request number N from the seed and N, so that any of them can be made again by itself.

    What earlier answers said is used too, and that differs from run to run.
    """

    def __init__(self, url: str, document: dict[str, Any], seed: int, credentials: Credentials | None = None) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname, address.port
        self._seed = seed
        self._credentials = credentials
        self._pool = Pool()
        self._sqs = SqsRequests(self._pool)
        self._jobs = JobRequests(document, self._pool)
        self.answers: Counter[str] = Counter()
        """By kind of request and first digit of the status."""
        self.failures: list[Failure] = []

    def request(self, number: int) -> Sent:
        """Make one request."""
        rng = random.Random(f"{self._seed}/{number}")
        source = self._sqs if rng.random() < 0.6 else self._jobs
        return finish(rng, source.request(rng), self._credentials)

    async def prepare(self, queues: list[str]) -> None:
        """Make job queues, for the first requests to be about."""
        for name in queues:
            sent = Sent("v1", "PUT", f"/v1/queues/{name}", [("Host", "localhost")], b'{"settings":{}}')
            if self._credentials is not None:
                self._credentials.prove(sent)
            reader, writer = await asyncio.open_connection(self._host, self._port)
            answer = await self._exchange(sent, reader, writer)
            writer.close()
            assert answer[9:12] in (b"200", b"201"), answer

    async def run(self, count: int) -> None:
        """Send requests until all were answered, or too many failed."""
        numbers = iter(range(count))
        await asyncio.gather(*(self._send_all(numbers) for _ in range(CONNECTIONS)))

    async def _send_all(self, numbers: Iterator[int]) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        for number in numbers:
            if len(self.failures) >= FAILURES_MAX:
                break
            sent = self.request(number)
            if connection is None or not sent.framed:
                if connection is not None:
                    connection[1].close()
                connection = await asyncio.open_connection(self._host, self._port)
            try:
                answer = await asyncio.wait_for(self._exchange(sent, *connection), ANSWER_TIMEOUT_S)
            except TimeoutError:
                answer = b"HTTP/1.1 599 no answer\r\n\r\n"
            except ConnectionError:
                answer = b""  # It was cut off, as what is no HTTP may be.
            self._judge(number, sent, answer)
            if not sent.framed or sent.streamed or not answer or b"onnection: close" in answer:
                connection[1].close()
                connection = None
        if connection is not None:
            connection[1].close()

    async def _exchange(self, sent: Sent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Send a request; return its answer, or what there is of one that goes on."""
        writer.write(sent.write())
        if not sent.framed:
            writer.write_eof()
            return await reader.read(65_536)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is None or sent.method == "HEAD":
            return head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")  # Whatever comes is not read.
        return head + await reader.readexactly(int(length[1]))

    def _judge(self, number: int, sent: Sent, answer: bytes) -> None:
        status = answer[9:12].decode("latin-1")
        self.answers[f"{sent.kind} {status[:1] or '-'}xx"] += 1
        _, _, body = answer.partition(b"\r\n\r\n")
        bad = status.startswith("5") and not (status == "503" and len(body) > 10)
        if bad or b"Traceback" in answer or (sent.framed and not answer):
            self.failures.append(Failure(number, sent.write(), answer))
        elif status.startswith("2"):
            self._learn(body)

    def _learn(self, body: bytes) -> None:
        if body[:1] in (b"{", b"["):
            try:
                self._pool.add_all(json.loads(body))
            except ValueError:
                return
        for name, value in _ELEMENT.findall(body[:20_000] if body[:1] == b"<" else b""):
            self._pool.add(name.decode(), value.decode(errors="replace"))
