"""Streams of offers as tests read them, one part at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from penstock.domain.job import Offer
from penstock.engine.jobs.jobs import Jobs
from penstock.engine.jobs.streams import OfferStream
from tests.support.job_service import QUEUE


class Reader:
    """Reads a stream, one part at a time."""

    def __init__(self, stream: OfferStream) -> None:
        self.stream = stream
        self._batches = stream.batches()
        self._reading: asyncio.Task[list[Offer]] | None = None

    async def next(self) -> list[Offer]:
        return await anext(self._batches)

    def reading(self) -> asyncio.Task[list[Offer]]:
        self._reading = asyncio.create_task(self.next())
        return self._reading

    async def close(self) -> None:
        """Leave, as a client does whose connection breaks."""
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._batches.aclose()
        self.stream.close()


@contextlib.asynccontextmanager
async def reader(
    jobs: Jobs, credit: int, *, worker: str = "worker-1", call: str | None = None
) -> AsyncIterator[Reader]:
    opened = Reader(jobs.streams.open([QUEUE], credit=credit, worker=worker, call=call))
    try:
        yield opened
    finally:
        await opened.close()


async def turns() -> None:
    """Let the event loop go round, so that what can be done at once is done."""
    for _ in range(20):
        await asyncio.sleep(0)
