"""Celery on Redis, with those settings of its documentation that make it fast and keep its results.

Tasks are acknowledged before they run, as Celery does unless told otherwise: a worker that dies loses what it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery import Celery
from celery.signals import worker_ready

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFETCH = 128
_PROCESSES = 2
_TASK = "measured"


class CeleryProducer:
    """Sends tasks. Celery sends one at a time, so a batch is a loop."""

    def __init__(self, app: Celery) -> None:
        self._send = app.tasks[_TASK].apply_async
        self._results = app.backend.client

    def enqueue(self, payloads: list[str]) -> None:
        for payload in payloads:
            self._send((payload,))

    def completed(self) -> int:
        """Results have a database of Redis for themselves, a key for each."""
        return int(self._results.dbsize())


def measured(payload: str) -> int:
    """Do as little as a task can."""
    return len(payload)


def producer(port: int) -> CeleryProducer:
    """Return who sends tasks to the Redis at this port."""
    return CeleryProducer(_app(port))


def work(port: int, ready: Callable[[], None]) -> None:
    """Run a worker until it is told to stop."""

    def tell(**_: object) -> None:
        ready()

    worker_ready.connect(tell)
    options = ["worker", "--loglevel=ERROR", "--pool=prefork", f"--concurrency={_PROCESSES}"]
    _app(port).worker_main([*options, "--without-gossip", "--without-mingle", "--without-heartbeat"])


def _app(port: int) -> Celery:
    app = Celery("peer", broker=f"redis://127.0.0.1:{port}/0", backend=f"redis://127.0.0.1:{port}/1")
    app.conf.update(
        task_ignore_result=False,
        worker_prefetch_multiplier=_PREFETCH,
        worker_redirect_stdouts=False,  # Or nobody would hear that it is ready.
        broker_connection_retry_on_startup=True,
    )
    app.task(name=_TASK)(measured)
    return app
