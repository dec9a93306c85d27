"""Runs a Django task in a worker: its context, its signals, and its database connections."""

from __future__ import annotations

import traceback
from datetime import datetime
from typing import TYPE_CHECKING, Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections
from django.utils import timezone

from penstock.client.errors import ClientError
from penstock.client.tasks.context import Context, current
from penstock.client.tasks.retries import Discard, Snooze
from penstock.client.worker.troubles import is_permanent
from penstock.django.discovery import find_task
from penstock.django.framework import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_finished,
    task_started,
)
from penstock.django.jobs import as_django_has_it, changed, instant, plain
from penstock.django.results import class_path, kind_of, result_of, set_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.app import Penstock
    from penstock.client.tasks.retries import Retry
    from penstock.wire.jobs.answers import JobView


def runner(app: Penstock, sender: type, alias: str, path: str, *, is_async: bool) -> Callable[..., Any]:
    """Return the function that a worker calls for jobs of the task with this path."""

    def run(args: list[Any], kwargs: dict[str, Any], priority: int = 0, run_after: str | None = None) -> Any:  # noqa: ANN401 - whatever the task returns
        attempt = _Attempt(app, alias, path, args, kwargs, priority, run_after)
        # A thread of the worker keeps its connections, as a thread of a web server does between requests.
        close_old_connections()
        try:
            attempt.begin(None if attempt.number == 1 else attempt.seen_sync())
            task_started.send_robust(sender, task_result=attempt.result)
            try:
                value = plain(attempt.task.func(*attempt.arguments, **kwargs))
            except Exception as error:
                if attempt.fail(error, attempt.seen_sync):
                    task_finished.send_robust(sender, task_result=attempt.result)
                raise
            attempt.succeed(value)
            task_finished.send_robust(sender, task_result=attempt.result)
            return value
        finally:
            close_old_connections()

    async def arun(args: list[Any], kwargs: dict[str, Any], priority: int = 0, run_after: str | None = None) -> Any:  # noqa: ANN401 - as above
        attempt = _Attempt(app, alias, path, args, kwargs, priority, run_after)
        # What the task does with the ORM has a thread of its own, and so connections of its own.
        async with ThreadSensitiveContext():
            try:
                attempt.begin(None if attempt.number == 1 else await attempt.seen())
                await task_started.asend_robust(sender, task_result=attempt.result)
                try:
                    value = plain(await attempt.task.func(*attempt.arguments, **kwargs))
                except Exception as error:
                    view = None if attempt.decided(error) is not None else await attempt.seen()
                    if attempt.fail(error, lambda: view):
                        await task_finished.asend_robust(sender, task_result=attempt.result)
                    raise
                attempt.succeed(value)
                await task_finished.asend_robust(sender, task_result=attempt.result)
                return value
            finally:
                await sync_to_async(connections.close_all)()

    return arun if is_async else run


class _Attempt:
    """One attempt, as Django sees it."""

    def __init__(
        self,
        app: Penstock,
        alias: str,
        path: str,
        args: list[Any],
        kwargs: dict[str, Any],
        priority: int,
        run_after: str | None,
    ) -> None:
        self._app = app
        self._alias = alias
        self._path = path
        self._args = args
        self._kwargs = kwargs
        self._priority = priority
        self._run_after = run_after
        self._context: Context = current()
        self.number = self._context.attempt
        self.task: Any = find_task(path)
        self.result: Any = None

    @property
    def arguments(self) -> list[Any]:
        """What to call the function with."""
        return [TaskContext(task_result=self.result), *self._args] if self.task.takes_context else self._args

    async def seen(self) -> JobView | None:
        """Return the job with its attempts; None if the server does not answer."""
        try:
            return await self._app.jobs.get(self._context.id)
        except ClientError:
            return None

    def seen_sync(self) -> JobView | None:
        """As `seen`, in a thread."""
        try:
            return self._app.sync.jobs.get(self._context.id)
        except ClientError:
            return None

    def begin(self, view: JobView | None) -> None:
        """Note that it runs. `view` has the attempts before it."""
        if view is not None:
            self.result = result_of(view, self._alias)
            return
        began = timezone.now()
        context = self._context
        run_after = self._run_after and as_django_has_it(datetime.fromisoformat(self._run_after))
        self.result = TaskResult(
            task=changed(
                self.task,
                priority=self._priority,
                queue_name=context.queue,
                run_after=run_after,
                backend=self._alias,
            ),
            id=context.id,
            status=TaskResultStatus.RUNNING,
            enqueued_at=instant(context.info.enqueued_at_ms),
            started_at=began,
            last_attempted_at=began,
            finished_at=None,
            args=self._args,
            kwargs=self._kwargs,
            backend=self._alias,
            errors=[],
            worker_ids=[""] * (self.number - 1) + [context.worker],
        )

    def succeed(self, value: object) -> None:
        """Note what it returned."""
        set_field(self.result, "_return_value", value)
        self._finish(TaskResultStatus.SUCCESSFUL)

    def fail(self, error: Exception, look: Callable[[], JobView | None]) -> bool:
        """Note what it raised; return whether that is the end of the task, which Django is told about."""
        if isinstance(error, Snooze):
            return False
        self.result.errors.append(
            TaskError(
                exception_class_path=class_path(kind_of(error)),
                traceback="".join(traceback.format_exception(error)),
            )
        )
        final = self.decided(error)
        if final is None:
            view, retry = look(), self._retry
            most = view.retry.attempts_max if view is not None else 1 if retry is None else retry.attempts
            final = self._context.failures + 1 >= most
        if final:
            self._finish(TaskResultStatus.FAILED)
        else:
            set_field(self.result, "status", TaskResultStatus.READY)
        return final

    def decided(self, error: Exception) -> bool | None:
        """Return whether an error alone ends the task; None if that depends on how often it failed."""
        if isinstance(error, Snooze):
            return False
        return True if isinstance(error, Discard) or is_permanent(error, self._retry) else None

    @property
    def _retry(self) -> Retry | None:
        retry: Retry | None = getattr(self._app.find_task(self._path), "retry", None)
        return retry

    def _finish(self, status: Any) -> None:  # noqa: ANN401 - the framework's enum has no types
        set_field(self.result, "finished_at", timezone.now())
        set_field(self.result, "status", status)
