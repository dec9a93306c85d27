"""Arq on Redis. It looks for jobs every 10 ms here; with its usual 500 ms it would run at most 200 jobs a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker, func

from benchmarks.library.programs.tasks import nap_async, noop_async, stamp_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place

_POLL_S = 0.01
_SLOTS = 20


class _Producer:
    def __init__(self, redis: ArqRedis) -> None:
        self._redis = redis

    async def enqueue(self, call: Call) -> None:
        await self._redis.enqueue_job(*call)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        """Enqueue all at once: Arq has nothing for many."""
        await asyncio.gather(*map(self.enqueue, calls))


async def open_producer(place: Place) -> _Producer:
    return _Producer(await create_pool(_settings(place)))


async def noop(_: object, number: int, argument: int) -> None:
    await noop_async(number, argument)


async def nap(_: object, number: int, milliseconds: int) -> None:
    await nap_async(number, milliseconds)


async def stamp(_: object, number: int, sent_ns: int) -> None:
    await stamp_async(number, sent_ns)


def work(place: Place, ready: Callable[[], None]) -> None:
    async def tell(_: object) -> None:
        ready()

    asyncio.set_event_loop(asyncio.new_event_loop())  # It looks for one when it is made.
    worker = Worker(
        [func(noop, name="noop"), func(nap, name="nap_async"), func(stamp, name="stamp")],
        redis_settings=_settings(place),
        max_jobs=place.slots_or(_SLOTS),
        poll_delay=_POLL_S,
        on_startup=tell,
    )
    try:
        worker.run()
    except asyncio.CancelledError:
        return  # It was asked to stop.


def _settings(place: Place) -> RedisSettings:
    host, _, port = place.address.partition(":")
    return RedisSettings(host=host, port=int(port))
