"""Dramatiq on Redis. It acknowledges a message when its actor has ended, in both classes."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware.asyncio import AsyncIO

from benchmarks.library.programs.tasks import SYNC, nap_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place

_SLOTS = 20


class _Producer:
    def __init__(self, broker: RedisBroker) -> None:
        self._actors = {name: broker.get_actor(name) for name in (*SYNC, "nap_async")}

    def enqueue(self, call: Call) -> None:
        self._actors[call[0]].send(*call[1:])

    def enqueue_many(self, calls: Sequence[Call]) -> None:
        """Send one by one: a Dramatiq group does the same."""
        for call in calls:
            self.enqueue(call)


def producer(place: Place) -> _Producer:
    return _Producer(_broker(place))


def work(place: Place, ready: Callable[[], None]) -> None:
    worker = dramatiq.Worker(_broker(place), worker_threads=place.slots_or(_SLOTS))
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    worker.start()
    ready()
    stopped.wait()
    worker.stop()


def _broker(place: Place) -> RedisBroker:
    broker = RedisBroker(url=f"redis://{place.address}/0")
    broker.add_middleware(AsyncIO())
    dramatiq.set_broker(broker)
    for name, function in {**SYNC, "nap_async": nap_async}.items():
        dramatiq.actor(function, actor_name=name, broker=broker)
    return broker
