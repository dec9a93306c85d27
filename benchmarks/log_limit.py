"""The log-only limit: what the disk allows to anything that acknowledges only what is durable.

Callers append records to one file; records that arrive while an fsync is under way are written and made durable
together by the next one. A lifecycle is three records: a send (the body), a receive and a delete (a few bytes each),
all with the length and the checksum without which no log could be read back. Nothing is indexed or found again, so no
store with this durability, on this disk and in this language, is faster by much.
"""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from benchmarks.timing import Budget, Rate, measure

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.workload import Workload

CHANGE_BYTES = 32
"""What a receive or a delete leaves in a log: a queue, a position, a receipt and an instant."""

_HEADER = struct.Struct(">II")

_make_durable = getattr(os, "fdatasync", os.fsync)


class GroupCommitLog:
    """A file that is only appended to, with one fsync for all the records that waited for it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="log")
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._committing: asyncio.Task[None] | None = None
        self.syncs = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._committing is not None:
            await self._committing
        self._disk.shutdown()
        os.close(self._file)

    async def append(self, record: bytes) -> None:
        """Write a record, and return once it is durable."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((record, durable))
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit())
        await durable

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                try:
                    await loop.run_in_executor(self._disk, self._write, b"".join(record for record, _ in group))
                except OSError as error:
                    for _, durable in group:
                        durable.set_exception(error)
                    continue
                for _, durable in group:
                    if not durable.done():
                        durable.set_result(None)
        finally:
            self._committing = None

    def _write(self, records: bytes) -> None:
        written = 0
        while written < len(records):
            written += os.write(self._file, memoryview(records)[written:])
        _make_durable(self._file)
        self.syncs += 1


def frame(payload: bytes) -> bytes:
    """Make a record of a payload."""
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


class LogLifecycle:
    """A lifecycle of messages as a log sees it."""

    def __init__(self, log: GroupCommitLog, body_bytes: int) -> None:
        self._log = log
        self._sent = os.urandom(CHANGE_BYTES + body_bytes)
        self._changed = os.urandom(CHANGE_BYTES)

    async def cycle(self, count: int) -> int:
        """Send, receive and delete so many messages: three appends, each of that many records."""
        for payload in (self._sent, self._changed, self._changed):
            await self._log.append(b"".join([frame(payload) for _ in range(count)]))
        return count


async def measure_log(folder: Path, workload: Workload, budget: Budget) -> Rate:
    """Measure lifecycles of a log that is kept in this folder meanwhile, with as many callers as the workload has."""
    path = folder / f"penstock-bench-{os.urandom(4).hex()}.log"
    try:
        async with GroupCommitLog(path) as log:
            lifecycle = LogLifecycle(log, workload.body_bytes)
            return await measure(lifecycle.cycle, callers=workload.callers, batch=workload.batch, budget=budget)
    finally:
        path.unlink(missing_ok=True)
