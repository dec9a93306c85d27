"""Celery apps for tests, each with a broker in memory of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from celery import Celery, signals
from celery.backends.base import Backend

_count = itertools.count()


def leave_logging_alone(**_: Any) -> None:
    """Keep a worker in the tests' process from setting up the logging of all other tests."""


signals.setup_logging.connect(leave_logging_alone)


def celery_app(**settings: Any) -> Any:
    """Make a Celery app. Nothing of it is shared with the next one."""
    made = Celery(f"shop{next(_count)}", set_as_current=False, broker="memory://")
    made.conf.update(
        task_default_queue=f"queue-{made.main}",  # The transport keeps the queues of a process in one place.
        broker_transport_options={"polling_interval": 0.02},
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        **settings,
    )
    return made


def task(app: Any, name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare a task of this app alone; Celery's own decorator has no types."""
    decorate: Callable[[Callable[..., Any]], Any] = app.task(name=name, shared=False, **options)
    return decorate


def waiting(app: Any) -> list[dict[str, Any]]:
    """Take the messages that wait in the app's queue, and return their headers."""
    found = []
    with app.connection_for_read() as connection, connection.SimpleQueue(app.conf.task_default_queue) as queue:
        while queue.qsize():
            message = queue.get(block=False)
            message.ack()
            found.append(dict(message.headers))
    return found


class BrokenBackend(Backend):  # type: ignore[misc] # Celery has no types.
    """A result backend that takes nothing."""

    def _store_result(self, *_: object, **__: object) -> None:
        raise ConnectionError("the backend is away")
