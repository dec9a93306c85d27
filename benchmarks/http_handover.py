"""How long a message takes from its send to a consumer that already waits for it, over HTTP and without other load."""

from __future__ import annotations

import asyncio
import re
import time
from array import array
from typing import TYPE_CHECKING

from benchmarks.errors import WorkFailed
from benchmarks.http_connection import dechunk
from benchmarks.http_requests import RequestWriter
from benchmarks.process import cpu_seconds_of
from benchmarks.timing import Latency, Rate
from benchmarks.workload import make_bodies

if TYPE_CHECKING:
    from benchmarks.http_servers import Serving

SAMPLES_MAX = 2_000

_WAIT_SECONDS = 10
_ANSWER_SECONDS_MAX = 15.0
_POLL_SETTLE_SECONDS = 0.005
"""How long before the send the poll was written: no server tells when it waits."""
_EMPTY_MAX = 20
_HANDLE = re.compile(rb'"ReceiptHandle": ?"([^"]+)"')
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_ANSWER_BYTES_MAX = 1 << 20


async def hand_over(serving: Serving, *, body_bytes: int, seconds: float) -> Rate:
    """Hand messages over one after the other for so long, one at least; the latencies are from send to received."""
    writer = RequestWriter(f"127.0.0.1:{serving.port}", serving.queue_url, make_bodies(body_bytes))
    sender, consumer = Client(serving.port), Client(serving.port)
    latencies_s = array("d")
    empty = 0
    cpu_s, started_s = cpu_seconds_of(serving.pid), time.perf_counter()
    try:
        while not latencies_s or (time.perf_counter() - started_s < seconds and len(latencies_s) < SAMPLES_MAX):
            poll = asyncio.create_task(consumer.ask(writer.receive(1, wait_seconds=_WAIT_SECONDS)))
            await asyncio.sleep(_POLL_SETTLE_SECONDS)
            sent_at_s = time.perf_counter()
            await sender.ask(writer.send(1))
            answer, received_at_s = await poll
            handle = _HANDLE.search(answer)
            if handle is None:
                empty += 1
                if empty > _EMPTY_MAX:
                    raise WorkFailed("polls end without the message that was sent meanwhile")
                continue
            latencies_s.append(received_at_s - sent_at_s)
            await consumer.ask(writer.delete([handle[1].decode()], batch=False))
    finally:
        sender.close()
        consumer.close()
    cpu_s, seconds = cpu_seconds_of(serving.pid) - cpu_s, time.perf_counter() - started_s
    count = len(latencies_s)
    return Rate(
        operations=count,
        messages=count,
        seconds=round(seconds, 4),
        operations_per_s=round(count / seconds, 1),
        messages_per_s=round(count / seconds, 1),
        cpu_us_per_message=round(cpu_s * 1e6 / count, 2),
        latency=Latency.of(latencies_s),
    )


class Client:
    """One connection, made again whenever the server closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[bytes, float]:
        """Return the answer (head and body) and the instant at which it was there."""
        try:
            return await asyncio.wait_for(self._ask(request), _ANSWER_SECONDS_MAX)
        except TimeoutError:
            raise WorkFailed(f"an answer took more than {_ANSWER_SECONDS_MAX:g} s") from None
        except asyncio.IncompleteReadError as error:
            raise WorkFailed("the server closed a connection that waited for an answer") from error

    def close(self) -> None:
        """Say no more."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, request: bytes) -> tuple[bytes, float]:
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=_ANSWER_BYTES_MAX)
        reader, writer = self._streams
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        found, head_end = _LENGTH.search(answer), len(answer)
        if found is not None:
            answer += await reader.readexactly(int(found[1]))
        else:
            while dechunk(answer, head_end) is None:
                more = await reader.read(_ANSWER_BYTES_MAX)
                if not more:
                    raise WorkFailed("the server closed a connection in the middle of an answer")
                answer += more
        received_at_s = time.perf_counter()
        if b" 200 " not in answer[:16]:
            raise WorkFailed(f"the server answered: {answer[:300]!r}")
        return answer, received_at_s
