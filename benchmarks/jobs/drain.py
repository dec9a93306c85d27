"""A worker that takes jobs from a stream and reports on them in batches, as a client library does."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

from benchmarks.errors import WorkFailed
from benchmarks.jobs.requests import JobRequests, refuse_failures

if TYPE_CHECKING:
    from benchmarks.jobs.service import Load

CREDIT = 400
"""With more a drain is no faster."""

_TOKEN = re.compile(rb'^\{"offer":\{"token":"([^"]+)"')
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_LINE_BYTES_MAX = 2 * 1_048_576


async def drain(load: Load) -> float:
    """Have `jobs` jobs offered, accepted and completed, and return the seconds."""
    requests = JobRequests(load.port, load.queue, load.payload_bytes)
    tokens: asyncio.Queue[str] = asyncio.Queue()
    offers, streaming = await _connect(load.port)
    answers, reporting = await _connect(load.port)
    started_s = time.perf_counter()
    streaming.write(requests.stream(CREDIT))
    reading = asyncio.create_task(_read(offers, tokens))
    done = 0
    try:
        async with asyncio.timeout(load.seconds_max):
            while done < load.jobs:
                batch = [await _next(tokens, reading)]
                while len(batch) < load.batch and not tokens.empty():
                    batch.append(tokens.get_nowait())
                results = [(token, len(token)) for token in batch]
                for report in (requests.accept(batch, batch=True), requests.complete(results, batch=True)):
                    reporting.write(report)
                    refuse_failures(await _answer(answers))
                done += len(batch)
    except TimeoutError:
        raise WorkFailed(f"{load.jobs} jobs took more than {load.seconds_max:g} s") from None
    finally:
        reading.cancel()
        await asyncio.wait([reading])
        for writer in (streaming, reporting):
            writer.close()
    return time.perf_counter() - started_s


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, limit=_LINE_BYTES_MAX)


async def _next(tokens: asyncio.Queue[str], reading: asyncio.Task[None]) -> str:
    """Wait for the next offer, or raise what ended the stream."""
    getting = asyncio.ensure_future(tokens.get())
    await asyncio.wait((getting, reading), return_when=asyncio.FIRST_COMPLETED)
    if getting.done():
        return getting.result()
    getting.cancel()
    reading.result()
    raise WorkFailed("the stream ended")


async def _read(offers: asyncio.StreamReader, tokens: asyncio.Queue[str]) -> None:
    """Read the lines of a stream. A chunk holds whole lines, so what is around them is on lines of its own."""
    while line := await offers.readline():
        found = _TOKEN.match(line)
        if found is not None:
            tokens.put_nowait(found[1].decode())


async def _answer(answers: asyncio.StreamReader) -> bytes:
    head = await answers.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if length is None or b" 200 " not in head[:20]:
        raise WorkFailed(f"the server answered: {head!r}")
    return head + await answers.readexactly(int(length[1]))
