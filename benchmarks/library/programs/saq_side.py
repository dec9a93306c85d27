"""SAQ on Redis. In the durable class a job may be tried again, or one whose worker died would be given up."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from saq import Queue, Worker

from benchmarks.library.programs import tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place

_RETRIES = 5
_SLOTS = 20


class _Producer:
    def __init__(self, queue: Queue, place: Place) -> None:
        self._queue = queue
        self._options = {"retries": _RETRIES} if place.durable else {}

    async def enqueue(self, call: Call) -> None:
        await self._queue.enqueue(call[0], number=call[1], argument=call[2], **self._options)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        """Enqueue all at once: SAQ has nothing for many."""
        await asyncio.gather(*map(self.enqueue, calls))


async def open_producer(place: Place) -> _Producer:
    queue = _queue(place)
    await queue.connect()
    return _Producer(queue, place)


async def noop(_: object, *, number: int, argument: int) -> None:
    await tasks.noop_async(number, argument)


async def nap_async(_: object, *, number: int, argument: int) -> None:
    await tasks.nap_async(number, argument)


def nap(_: object, *, number: int, argument: int) -> None:
    tasks.nap(number, argument)


async def stamp(_: object, *, number: int, argument: int) -> None:
    await tasks.stamp_async(number, argument)


def work(place: Place, ready: Callable[[], None]) -> None:
    asyncio.run(_work(place, ready))


async def _work(place: Place, ready: Callable[[], None]) -> None:
    async def tell(_: object) -> None:
        ready()

    slots = place.slots_or(_SLOTS)
    worker = Worker(_queue(place), [noop, nap, nap_async, stamp], concurrency=slots, startup=tell)
    worker.pool = ThreadPoolExecutor(slots)  # It would have a few more threads than there are cores.
    await worker.start()


def _queue(place: Place) -> Queue:
    return Queue.from_url(f"redis://{place.address}/0")
