"""Jobs as the results of Django tasks."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.django.discovery import find_task
from penstock.django.framework import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from penstock.django.jobs import as_django_has_it, changed, instant, read_payload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.job import Failure
    from penstock.wire.jobs.answers import AttemptView, JobView

_STATUSES = {
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
"""All other states are READY."""
_CLASSES = {
    "timeout": "builtins.TimeoutError",
    "lost": "penstock.client.errors.LeaseLost",
    "expired": "penstock.client.errors.JobCancelled",
    "Discarded": "penstock.client.tasks.retries.Discard",
}
"""Failures that are no exceptions of a task, as classes that say the same."""
_CANCELLED = "penstock.client.errors.JobCancelled"
_UNKNOWN = "penstock.client.errors.JobDead"


def kind_of(error: BaseException) -> str:
    """Return how the class of an exception is named in a failure, so that it can be imported again."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def class_path(kind: str) -> str:
    """Return where the class is that `kind_of` named."""
    if "." in kind:
        return kind
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, BaseException):
        return f"builtins.{kind}"
    return _CLASSES.get(kind, _UNKNOWN)


def result_of(view: JobView, alias: str) -> Any:  # noqa: ANN401 - the framework's results have no types
    """Return a job as a result; raises `TaskResultDoesNotExist` if it is not of a Django task."""
    payload = read_payload(view.payload)
    if payload is None:
        raise TaskResultDoesNotExist(f"Job {view.id} is not of a Django task: it is one of {view.task}.")
    run_after = None if payload.run_after is None else as_django_has_it(datetime.fromisoformat(payload.run_after))
    task = changed(
        find_task(view.task), priority=payload.priority, queue_name=view.queue, run_after=run_after, backend=alias
    )
    history = view.history
    result = TaskResult(
        task=task,
        id=view.id,
        status=_STATUSES.get(view.state, TaskResultStatus.READY),
        enqueued_at=instant(view.enqueued_at_ms),
        started_at=instant(history[0].started_at_ms) if history else None,
        last_attempted_at=instant(history[-1].started_at_ms) if history else None,
        finished_at=None if view.finished_at_ms is None else instant(view.finished_at_ms),
        args=payload.args,
        kwargs=payload.kwargs,
        backend=alias,
        errors=_errors(view),
        worker_ids=_workers(history),
    )
    if view.state == "succeeded":
        set_field(result, "_return_value", msgspec.json.decode(view.result) if bytes(view.result) else None)
    return result


def set_field(result: Any, name: str, value: object) -> None:  # noqa: ANN401 - as above
    """Change a result, which is frozen for users, as the framework itself does."""
    object.__setattr__(result, name, value)


def _workers(history: Sequence[AttemptView]) -> list[str]:
    """Return who ran each attempt. Only the last hundred are kept; those before count, too."""
    before = history[0].number - 1 if history else 0
    return [""] * before + [attempt.worker for attempt in history]


def _errors(view: JobView) -> list[Any]:
    errors = [_error(attempt.failure) for attempt in view.history if attempt.failure is not None]
    if view.state == "cancelled" and (view.failure is None or not errors):
        said = "The job was cancelled." if view.failure is None else view.failure.message
        errors.append(TaskError(exception_class_path=_CANCELLED, traceback=f"JobCancelled: {said}"))
    if view.state == "dead" and not errors and view.failure is not None:
        errors.append(_error(view.failure))
    return errors


def _error(failure: Failure) -> Any:  # noqa: ANN401 - as above
    said = failure.details or (f"{failure.kind}: {failure.message}" if failure.message else failure.kind)
    return TaskError(exception_class_path=class_path(failure.kind), traceback=said)
