"""How what a Celery task was declared with becomes options of a task."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from celery.utils.time import rate as per_second_of

from penstock.client.integrations.celery.errors import CeleryUnsupported
from penstock.client.tasks.options import PRIORITY_MAX
from penstock.client.tasks.retries import COUNT_MAX, Retry

if TYPE_CHECKING:
    from penstock.client.tasks.options import TaskOptions
    from penstock.client.tasks.task import RunIn

SERIALIZERS = frozenset({"json", "msgpack", "yaml", None})
"""What these can hold, Celery's JSON can hold too. pickle is not among them."""
DEFAULT_STRATEGY = "celery.worker.strategy:default"
_FAILED = "_penstock_failed"


class _Failures(type):
    def __instancecheck__(cls, error: object) -> bool:
        return bool(getattr(error, _FAILED, False))


class Failed(Exception, metaclass=_Failures):
    """An exception that Celery does not retry: `isinstance` is true for what `failed` has marked.

    In Celery only `retry` and `autoretry_for` lead to another attempt, whatever class the exception has.
    """


def failed(error: BaseException) -> BaseException:
    """Mark an exception as one that ends the job, and return it."""
    setattr(error, _FAILED, True)
    return error


def check(task: Any, run_in: RunIn, given: TaskOptions) -> None:  # noqa: ANN401 - Celery has no types
    """Raise `CeleryUnsupported` if a Celery task has what a worker here cannot do."""
    name = task.name
    if task.serializer not in SERIALIZERS:
        raise CeleryUnsupported(
            f"Task {name} is sent with the serializer {task.serializer!r}. Arguments have to be JSON: set "
            'task_serializer="json", or @app.task(serializer="json"), and send ids instead of objects.'
        )
    if task.Strategy != DEFAULT_STRATEGY:
        raise CeleryUnsupported(f"Task {name} has a Strategy of its own, {task.Strategy!r}, or was moved already.")
    if task.soft_time_limit and run_in != "process" and "timeout" not in given:
        raise CeleryUnsupported(
            f"Task {name} has a soft_time_limit, which can interrupt only code in a process of its own. "
            'Adopt it with run_in="process", or pass a timeout= and look at current().time_left.'
        )
    if task.soft_time_limit and task.time_limit and task.soft_time_limit > task.time_limit:
        raise CeleryUnsupported(f"The soft_time_limit of task {name} is longer than its time_limit.")


def options_of(task: Any, given: TaskOptions) -> TaskOptions:  # noqa: ANN401 - as above
    """Return the options that a Celery task means, and those that are given instead; raises `CeleryUnsupported`."""
    route = _route(task)
    options: dict[str, Any] = {"queue": route["queue"]}
    if task.time_limit or task.soft_time_limit:
        options["timeout"] = task.time_limit or task.soft_time_limit
    if route["priority"] is not None:
        options["priority"] = priority_of(task.app, route["priority"])
    if task.rate_limit and (per_second := per_second_of(task.rate_limit)):
        options["rate"] = (task.name, per_second)
    if isinstance(task.expires, int | float):
        options["expires"] = task.expires
    options |= given
    options["retry"] = _retry(task, given.get("retry"))
    return cast("TaskOptions", options)


def priority_of(celery_app: Any, given: int) -> int:  # noqa: ANN401 - as above
    """Return a priority as a job has it, where 9 is the most urgent; Celery on Redis has 0 as that."""
    if type(given) is not int or not 0 <= given <= PRIORITY_MAX:
        raise CeleryUnsupported(f"priority is a whole number from 0 to {PRIORITY_MAX}, not {given!r}.")
    scheme = str(celery_app.conf.broker_write_url or celery_app.conf.broker_url or "").partition(":")[0]
    return PRIORITY_MAX - given if scheme in {"redis", "rediss", "sentinel"} else given


def retry_left(retry: Retry, retries: int) -> Retry:
    """Return what is left of the attempts after Celery has used some of them."""
    left = copy.copy(retry)
    left.attempts = max(retry.attempts - retries, 1)
    left.settings = {**retry.settings, "attempts_max": left.attempts}
    return left


def _retry(task: Any, given: Retry | None) -> Retry:  # noqa: ANN401 - as above
    """Return a policy by which Celery's own rules decide: how long to wait is said by each failure."""
    if given is not None:
        made = copy.copy(given)
    else:
        attempts = COUNT_MAX if task.max_retries is None else min(task.max_retries + 1, COUNT_MAX)
        made = Retry(attempts=attempts, backoff=0, factor=1, jitter=False)
    made.permanent = (*made.permanent, Failed)
    return made


def _route(task: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return the name of the queue that Celery would send the task to, and its priority there."""
    own = {name: getattr(task, name, None) for name in ("queue", "priority")}
    found = task.app.amqp.router.route({name: value for name, value in own.items() if value is not None}, task.name)
    queue = found.get("queue")
    name = str(getattr(queue, "name", queue) or task.app.conf.task_default_queue)
    return {"queue": name, "priority": found.get("priority")}
