"""What a Celery worker does with a message of a moved task: it enqueues the job, and acknowledges the message then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from celery.app.task import Context as CeleryRequest

from penstock.client.errors import ArgumentsInvalid, ClientError, JobExists, TooLarge
from penstock.client.integrations.celery.adopting import AdoptedTask
from penstock.client.integrations.celery.calls import call_of, instant_of, is_uuid
from penstock.client.integrations.celery.codec import ABOUT
from penstock.client.integrations.celery.declaring import retry_left
from penstock.client.integrations.celery.errors import CeleryUnsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.integrations.celery.moving import Moves

_log = logging.getLogger("penstock.celery")

BACK_HEADER = "penstock-sent-back"
"""A message that has it was sent to Celery by a worker of ours, and is not forwarded again."""
TIMEOUT_S = 5.0
"""How long one try to enqueue may take: the worker does nothing else meanwhile."""
WAIT_S = 1.0
WAIT_S_MAX = 30.0
"""Between two tries to enqueue what the server did not take: doubled each time, up to this."""
_OWN_HEADERS = {*vars(CeleryRequest), "lang", "task", "argsrepr", "kwargsrepr", "compression", "stamps", BACK_HEADER}
_STAY = (ArgumentsInvalid, CeleryUnsupported, TooLarge)
"""What would be refused each time, so that Celery runs it as it always did."""


class _Message(NamedTuple):
    """A message with all that Celery needs to run it, and to acknowledge it."""

    message: Any
    body: Any
    ack: Any
    reject: Any
    callbacks: Any


def strategy_of(moves: Moves) -> Callable[..., Any]:
    """Return the strategy of moved tasks, by which a worker decides what a message becomes."""

    def strategy(task: Any, app: Any, consumer: Any, **options: Any) -> Any:  # noqa: ANN401 - Celery has no types
        from celery.worker.strategy import default  # noqa: PLC0415 - only workers load it

        return _Forwarding(moves, task, consumer, default(task, app, consumer, **options)).receive

    return strategy


class _Forwarding:
    """Forwards the messages of one task."""

    def __init__(self, moves: Moves, task: Any, consumer: Any, run: Callable[..., Any]) -> None:  # noqa: ANN401 - as above
        self._moves = moves
        self._task = task
        self._consumer = consumer
        self._run = run

    def receive(self, message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        """Forward a message, or let Celery run it. A message that cannot be forwarded now is kept and tried again."""
        received = _Message(message, body, ack, reject, callbacks)
        if not self._can_forward(received):
            return self._run(*received, **options)
        self._forward(received, WAIT_S)
        return None

    def _forward(self, received: _Message, wait_s: float) -> None:
        headers = received.message.headers
        try:
            forwarded = self._moves.is_active(self._task.name) and self._enqueue(received.message)
        except Exception as error:  # noqa: BLE001 - the client's, or of the user's own switch
            # It stays unacknowledged: if this worker dies, the broker delivers it again.
            _log.warning(
                "task %s[%s] cannot be forwarded yet, next try in %g s: %s",
                self._task.name,
                headers["id"],
                wait_s,
                error,
                exc_info=None if isinstance(error, ClientError) else error,
            )
            again = (received, min(2 * wait_s, WAIT_S_MAX))
            self._consumer.timer.call_after(wait_s, self._forward, again)
            return
        if not forwarded:
            self._run(*received)
            return
        received.ack(_log, self._consumer.connection_errors)
        _log.info("task %s[%s] forwarded", self._task.name, headers["id"])

    def _enqueue(self, message: Any) -> bool:  # noqa: ANN401 - as above
        """Return True once the job is durable, also if it was before; False if it could never be one."""
        args, kwargs, _ = message.payload
        task = self._moves.tasks[self._task.name]
        try:
            _, call = call_of(self._moves.celery_app, task, tuple(args), dict(kwargs), self._options(message))
            job = call.new_job()
            retries = message.headers.get("retries") or 0
            if retries and isinstance(task, AdoptedTask) and task.retry is not None:
                job.retry = retry_left(task.retry, retries).settings
            call.task.app.sync.jobs.enqueue_new(job, timeout=TIMEOUT_S)
        except JobExists:
            # The id is Celery's: an earlier delivery, or another attempt, of the same call.
            return True
        except _STAY as error:
            _log.warning("task %s[%s] stays with Celery: %s", self._task.name, message.headers["id"], error)
            return False
        return True

    def _can_forward(self, received: _Message) -> bool:
        """Return whether a message is a plain call by a task id that names it alone."""
        headers = received.message.headers or {}
        if received.body is not None or not is_uuid(headers.get("id")) or headers.get(BACK_HEADER):
            return False
        payload = received.message.payload
        if not isinstance(payload, list | tuple) or len(payload) != 3:
            return False
        canvas = any((payload[2] or {}).values()) or headers.get("group") or headers.get("stamped_headers")
        return (
            not canvas and headers["id"] not in self._consumer.controller.state.revoked and not self._expired(headers)
        )

    def _expired(self, headers: dict[str, Any]) -> bool:
        app = self._moves.celery_app
        return bool(headers.get("expires")) and instant_of(app, headers["expires"]) <= app.now()

    def _options(self, message: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """Return the options of the call that a message was made of, as far as it says them."""
        headers = message.headers
        limit, soft = headers.get("timelimit") or (None, None)
        return {
            "task_id": headers["id"],
            "eta": headers.get("eta"),
            "expires": headers.get("expires"),
            "time_limit": limit,
            "soft_time_limit": soft,
            "headers": {name: value for name, value in headers.items() if name not in _OWN_HEADERS} or None,
            ABOUT: {"retries": headers["retries"]} if headers.get("retries") else None,
        }
