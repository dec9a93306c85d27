"""Celery on Redis.

A worker is one process, as with the others: `solo` for tasks that take no time, which is the fastest of its pools then,
and threads for naps. Prefork would be 20 processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery import Celery
from celery.signals import worker_ready

from benchmarks.library.programs.tasks import SYNC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place


class _Producer:
    def __init__(self, app: Celery) -> None:
        self._tasks = {name: app.tasks[name] for name in SYNC}

    def enqueue(self, call: Call) -> None:
        self._tasks[call[0]].apply_async(call[1:])

    def enqueue_many(self, calls: Sequence[Call]) -> None:
        """Send one by one: a Celery group does the same."""
        for call in calls:
            self.enqueue(call)


def producer(place: Place) -> _Producer:
    return _Producer(_app(place))


def work(place: Place, ready: Callable[[], None]) -> None:
    def tell(**_: object) -> None:
        ready()

    worker_ready.connect(tell)
    pool = ["--pool=threads", f"--concurrency={place.slots}"] if place.slots else ["--pool=solo"]
    options = ["worker", "--loglevel=ERROR", *pool]
    _app(place).worker_main([*options, "--without-gossip", "--without-mingle", "--without-heartbeat"])


def _app(place: Place) -> Celery:
    app = Celery("bench", broker=f"redis://{place.address}/0")
    app.conf.update(broker_connection_retry_on_startup=True, worker_redirect_stdouts=False)
    if place.durable:
        app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)
    for name, function in SYNC.items():
        app.task(name=name)(function)
    return app
