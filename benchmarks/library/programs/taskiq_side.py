"""Taskiq on Redis streams, its broker with acknowledgements."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.library.programs.tasks import ASYNC, nap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place

_SLOTS = 20


class _Producer:
    def __init__(self, broker: RedisStreamBroker) -> None:
        self._tasks = {name: broker.find_task(name) for name in (*ASYNC, "nap")}

    async def enqueue(self, call: Call) -> None:
        await self._tasks[call[0]].kiq(*call[1:])

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        """Enqueue all at once: Taskiq has nothing for many."""
        await asyncio.gather(*map(self.enqueue, calls))


async def open_producer(place: Place) -> _Producer:
    broker = _broker(place)
    await broker.startup()
    return _Producer(broker)


def work(place: Place, ready: Callable[[], None]) -> None:
    asyncio.run(_work(place, ready))


async def _work(place: Place, ready: Callable[[], None]) -> None:
    slots = place.slots_or(_SLOTS)
    broker = _broker(place)
    broker.is_worker_process = True
    running = asyncio.create_task(
        run_receiver_task(broker, run_startup=True, max_async_tasks=slots, sync_workers=slots)
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    ready()
    await asyncio.wait([running])


def _broker(place: Place) -> RedisStreamBroker:
    broker = RedisStreamBroker(f"redis://{place.address}/0")
    for name, function in {**ASYNC, "nap": nap}.items():
        broker.register_task(function, task_name=name)
    return broker
