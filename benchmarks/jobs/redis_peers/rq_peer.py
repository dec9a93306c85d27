"""RQ on Redis, with workers that run jobs in their own process: forking for each is many times slower."""

from __future__ import annotations

import logging
import multiprocessing
from typing import TYPE_CHECKING

from redis import Redis  # type: ignore[import-not-found, unused-ignore] # It is where RQ is.
from rq import Queue, SimpleWorker  # type: ignore[import-not-found, unused-ignore] # In the peers' environment.

if TYPE_CHECKING:
    from collections.abc import Callable

_PROCESSES = 2
_TASK = "rq_peer.measured"


class RqProducer:
    """Enqueues jobs, several of them in one pipeline."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._finished = queue.finished_job_registry

    def enqueue(self, payloads: list[str]) -> None:
        if len(payloads) == 1:
            self._queue.enqueue(_TASK, payloads[0])
        else:
            self._queue.enqueue_many([Queue.prepare_data(_TASK, args=(payload,)) for payload in payloads])

    def completed(self) -> int:
        return int(self._finished.get_job_count(cleanup=False))


def measured(payload: str) -> int:
    """Do as little as a job can."""
    return len(payload)


def producer(port: int) -> RqProducer:
    """Return who enqueues jobs on the Redis at this port."""
    return RqProducer(_queue(port))


def work(port: int, ready: Callable[[], None]) -> None:
    """Run as many workers as Celery has processes, until told to stop."""
    others = [multiprocessing.Process(target=_work, args=(port,), daemon=True) for _ in range(_PROCESSES - 1)]
    for other in others:
        other.start()
    ready()
    _work(port)


def _work(port: int) -> None:
    queue = _queue(port)
    SimpleWorker([queue], connection=queue.connection).work(logging_level=logging.ERROR)


def _queue(port: int) -> Queue:
    return Queue("measured", connection=Redis(port=port))
