"""RQ on Redis, with workers that run jobs in their own process: forking for each is many times slower.

A worker runs one job at a time, so 20 slots are 20 processes.
"""

from __future__ import annotations

import logging
import multiprocessing
from typing import TYPE_CHECKING

from redis import Redis
from rq import Queue, SimpleWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place

_MODULE = "benchmarks.library.programs.tasks"


class _Producer:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def enqueue(self, call: Call) -> None:
        self._queue.enqueue(f"{_MODULE}.{call[0]}", *call[1:])

    def enqueue_many(self, calls: Sequence[Call]) -> None:
        self._queue.enqueue_many([Queue.prepare_data(f"{_MODULE}.{call[0]}", args=call[1:]) for call in calls])


def producer(place: Place) -> _Producer:
    return _Producer(_queue(place))


def work(place: Place, ready: Callable[[], None]) -> None:
    others = range(place.slots_or(1) - 1)
    for other in [multiprocessing.Process(target=_work, args=(place,), daemon=True) for _ in others]:
        other.start()
    ready()
    _work(place)


def _work(place: Place) -> None:
    queue = _queue(place)
    SimpleWorker([queue], connection=queue.connection).work(logging_level=logging.ERROR)


def _queue(place: Place) -> Queue:
    host, _, port = place.address.partition(":")
    return Queue("bench", connection=Redis(host=host, port=int(port)))
