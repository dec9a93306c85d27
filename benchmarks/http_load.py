"""The load generator: many connections to one server, in a process of its own (`python -m benchmarks.http_load`).

It reads jobs as lines of JSON, and answers each with one line. It ends with its input.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import time
from array import array
from typing import TYPE_CHECKING, Literal

import msgspec

from benchmarks.errors import WorkFailed
from benchmarks.http_connection import Connection
from benchmarks.http_requests import RequestWriter
from benchmarks.process import cpu_seconds_of, run
from benchmarks.timing import Latency
from benchmarks.workload import make_bodies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWER_SECONDS_MAX = 30.0
"""How long after the end of a job its last answers may take."""

_HANDLES = re.compile(rb'"ReceiptHandle": ?"([^"]+)"')
_FAILED = re.compile(rb'"Failed": ?\[ ?\{')

Kind = Literal["send", "lifecycle"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to one server, for how long. `pid` is its process, whose processor time is read.

    `queue_urls` take turns instead of the one queue, if there are any. With `groups` the queue is FIFO and has so many
    message groups. Sends end early once so many `messages` were asked for; only our own generator knows how to do that.
    """

    port: int
    pid: int
    queue_url: str
    kind: Kind
    batch: int
    connections: int
    body_bytes: int
    seconds: float
    queue_urls: list[str] = []
    groups: int = 0
    messages: int | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; with a `failure`, nothing."""

    requests: int = 0
    messages: int = 0
    seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    own_cpu_seconds: float = 0.0
    latency: Latency | None = None
    failure: str | None = None


class Tally:
    """Counts answers, until `stop`: those that come later do not count, and nothing more is asked."""

    def __init__(self, messages_max: int | None = None) -> None:
        self.messages = 0
        self.latencies_s = array("d")
        self.stopped = False
        self._left = messages_max

    def take(self, messages: int) -> int:
        """Say how many of these messages may be asked for."""
        if self.stopped:
            return 0
        if self._left is not None:
            messages = min(messages, self._left)
            self._left -= messages
        return messages

    def count(self, asked_at_s: float, messages: int) -> None:
        """Take in an answer, and how many messages are done with by it."""
        if not self.stopped:
            self.latencies_s.append(time.perf_counter() - asked_at_s)
            self.messages += messages


class Sends:
    """Send, again and again."""

    def __init__(self, writers: Iterator[RequestWriter], batch: int, tally: Tally) -> None:
        self._writers = writers
        self._batch = batch
        self._tally = tally
        self._count = 0
        self._asked_at_s = 0.0

    def request(self) -> bytes | None:
        self._count = self._tally.take(self._batch)
        if not self._count:
            return None
        asked = next(self._writers).send(self._count)
        self._asked_at_s = time.perf_counter()
        return asked

    def answered(self, answer: bytes) -> None:
        if self._batch > 1 and _FAILED.search(answer):
            raise WorkFailed(f"an entry of a batch was refused: {answer!r}")
        self._tally.count(self._asked_at_s, self._count)


class Lifecycles:
    """Send, receive as many, and delete what was received; a message counts once it is deleted."""

    def __init__(self, writers: Iterator[RequestWriter], batch: int, tally: Tally) -> None:
        self._writers = writers
        self._writer = next(writers)
        self._batch = batch
        self._tally = tally
        self._asked_at_s = 0.0
        self._write: Callable[[], bytes] = self._send
        self._handles: list[str] = []

    def request(self) -> bytes | None:
        if self._tally.stopped:
            return None
        asked = self._write()
        self._asked_at_s = time.perf_counter()
        return asked

    def answered(self, answer: bytes) -> None:
        done = 0
        if self._write == self._send:
            self._write = self._receive
        elif self._write == self._receive:
            self._handles = [handle.decode() for handle in _HANDLES.findall(answer)]
            # Others may have been quicker; then the next send makes up for it.
            self._write = self._delete if self._handles else self._send
        else:
            done = len(self._handles)
            self._write = self._send
        if self._batch > 1 and _FAILED.search(answer):
            raise WorkFailed(f"an entry of a batch was refused: {answer!r}")
        self._tally.count(self._asked_at_s, done)

    def _send(self) -> bytes:
        self._writer = next(self._writers)
        return self._writer.send(self._batch)

    def _receive(self) -> bytes:
        return self._writer.receive(self._batch)

    def _delete(self) -> bytes:
        return self._writer.delete(self._handles, batch=self._batch > 1)


_DIALOGUES: dict[Kind, type[Sends | Lifecycles]] = {"send": Sends, "lifecycle": Lifecycles}


async def perform(job: Job) -> Done:
    """Do a job: connect, then ask on all connections at once until the time is over, then hear the last answers."""
    tally = Tally(job.messages)
    writer = RequestWriter(f"127.0.0.1:{job.port}", job.queue_url, make_bodies(job.body_bytes), groups=job.groups)
    # All connections take from one line, so that no queue is asked more often than another.
    writers = itertools.cycle([writer.on(queue_url) for queue_url in job.queue_urls] or [writer])
    load = _Load(job.port)
    try:
        for _ in range(job.connections):
            await load.open(Connection(_DIALOGUES[job.kind](writers, job.batch, tally), load.reconnect))
        cpu_s, own_cpu_s, started_s = cpu_seconds_of(job.pid), time.process_time(), time.perf_counter()
        for connection in load.connections:
            connection.ask()
        await load.watch(job.seconds)
        tally.stopped = True
        seconds = time.perf_counter() - started_s
        cpu_s, own_cpu_s = cpu_seconds_of(job.pid) - cpu_s, time.process_time() - own_cpu_s
        if await load.watch(ANSWER_SECONDS_MAX):
            raise WorkFailed(f"an answer took more than {ANSWER_SECONDS_MAX:g} s")
    finally:
        load.end()
    if not tally.latencies_s:
        raise WorkFailed(f"there was no answer in {job.seconds:g} s")
    return Done(
        requests=len(tally.latencies_s),
        messages=tally.messages,
        seconds=seconds,
        server_cpu_seconds=cpu_s,
        own_cpu_seconds=own_cpu_s,
        latency=Latency.of(tally.latencies_s),
    )


class _Load:
    """The connections of one job."""

    def __init__(self, port: int) -> None:
        self.connections: list[Connection] = []
        self._port = port
        self._opening: set[asyncio.Task[None]] = set()

    async def open(self, connection: Connection) -> None:
        await self._connect(connection)
        self.connections.append(connection)

    def reconnect(self, connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(self._connect_again(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, connection: Connection) -> None:
        await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", self._port)

    async def _connect_again(self, connection: Connection) -> None:
        try:
            await self._connect(connection)
        except OSError as error:
            connection.fail(f"the server cannot be reached again: {error}")

    async def watch(self, seconds: float) -> bool:
        """Wait until all connections have ended, or so long; raise what ended one of them. Tell whether some go on."""
        ends = [connection.ended for connection in self.connections]
        done, pending = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for end in done:
            end.result()
        return bool(pending)

    def end(self) -> None:
        for task in self._opening:
            task.cancel()
        for connection in self.connections:
            connection.end()
            # Those that failed failed together, and one of them was told.
            connection.ended.exception()


async def _serve() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            done = await perform(msgspec.json.decode(line, type=Job))
        except (WorkFailed, OSError) as failure:
            done = Done(failure=str(failure))
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    run(_serve())
