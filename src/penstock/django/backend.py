"""`PenstockBackend`: tasks of Django's framework as jobs of Penstock."""

from __future__ import annotations

import inspect
import re
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core import checks
from django.db import connections, transaction
from django.utils import timezone

from penstock.client.errors import Invalid, JobNotFound, TaskExists, TaskInvalid
from penstock.client.loops import refuse_on_loop
from penstock.client.reading import new_id
from penstock.client.tasks.options import check_queue
from penstock.client.tasks.task import check_name
from penstock.django.configuration import (
    ATTRIBUTE,
    RETRY_DEFAULT,
    BackendOptions,
    OptionsInvalid,
    check_queues,
    read_options,
)
from penstock.django.discovery import discover, remember
from penstock.django.framework import (
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from penstock.django.jobs import changed, due_at, our_priority, plain
from penstock.django.results import kind_of, result_of, set_field
from penstock.django.running import runner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.client.app import Penstock
    from penstock.client.tasks.task import Call

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_apps: dict[str, tuple[dict[str, Any], Penstock]] = {}
"""The app of each alias, and what it was made with. Django has a backend for each thread; they share this."""


class PenstockBackend(BaseTaskBackend):
    """Enqueues tasks, and returns their results from any thread and process."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self._read: BackendOptions | None = None
        self._wrong = ""
        try:
            check_queues(alias, params.get("QUEUES", ()))
            super().__init__(alias, params)
            self._read = read_options(alias, self.options)
        except OptionsInvalid as error:
            # A module with tasks can be imported without a server; `check` and the first use say what is wrong.
            super().__init__(alias, {**params, "QUEUES": []})
            self._wrong = str(error)

    @property
    def settings(self) -> BackendOptions:
        """What OPTIONS say; raises `InvalidTaskBackend` if that is wrong."""
        if self._read is None:
            raise InvalidTaskBackend(self._wrong)
        return self._read

    @property
    def app(self) -> Penstock:
        """The `Penstock` that it uses: one in a process, for all threads."""
        settings = self.settings
        made = _apps.get(self.alias)
        if made is None or made[0] != settings.connection:
            app = settings.connect()
            app.kind_of = kind_of
            if made is None:
                made = _apps.setdefault(self.alias, (settings.connection, app))
            else:  # The settings were changed, which only tests do.
                made[1].close()
                made = _apps[self.alias] = (settings.connection, app)
        return made[1]

    def check(self, **_: object) -> Iterable[Any]:
        """Return what is wrong with the settings, for `manage.py check`."""
        if self._wrong:
            yield checks.Error(self._wrong, id="penstock.E001")
        if not apps.is_installed("penstock.django"):
            yield checks.Warning(
                f"TASKS[{self.alias!r}] uses Penstock, and manage.py has no penstock_worker.",
                hint='Add "penstock.django" to INSTALLED_APPS.',
                id="penstock.W001",
            )

    def validate_task(self, task: Any) -> None:  # noqa: ANN401 - the framework's tasks have no types
        """Raise `InvalidTask` unless a worker could run the task."""
        run_after = task.run_after
        if run_after is not None and not isinstance(run_after, datetime | timedelta):
            raise InvalidTask(f"run_after must be an aware datetime or a timedelta, not {run_after!r}.")
        super().validate_task(changed(task, run_after=None) if isinstance(run_after, timedelta) else task)
        if task.func.__module__ == "__main__" or "<" in task.func.__qualname__:
            raise InvalidTask(
                f"{task.func.__qualname__} cannot be imported by a worker. Move it to a module, by convention tasks.py."
            )
        try:
            check_name(task.module_path)
            check_queue(task.queue_name, "queue_name")
        except (TaskInvalid, TypeError, ValueError) as error:
            raise InvalidTask(str(error)) from None
        remember(task)

    # -- enqueueing -------------------------------------------------------------------------------------

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - as above
        """Have a worker call the task with these arguments.

        Raises `InvalidTask`, `TypeError` for arguments that do not fit or are no JSON, and a `ClientError` of Penstock
        if the server refuses the job or is away.
        """
        refuse_on_loop(f"{task.name}.enqueue", "aenqueue")
        call, result = self._prepare(task, args, kwargs)
        database = self.settings.on_commit
        if database is None:
            self._send(call, result)
        else:
            transaction.on_commit(partial(self._send, call, result), using=database)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - as above
        """As `enqueue`, for async code."""
        if self.settings.on_commit is not None or self.settings.transaction is not None:
            return await super().aenqueue(task, args, kwargs)
        call, result = self._prepare(task, args, kwargs)
        try:
            await call.enqueue()
        except Invalid as error:
            raise InvalidTask(str(error)) from error
        set_field(result, "enqueued_at", timezone.now())
        await task_enqueued.asend_robust(type(self), task_result=result)
        return result

    def _send(self, call: Call[Any], result: Any) -> None:  # noqa: ANN401 - as above
        try:
            call.enqueue_sync()
        except Invalid as error:
            raise InvalidTask(str(error)) from error
        if call.tx is None:
            self._announce(result)
        else:
            transaction.on_commit(partial(self._announce, result), using=self.settings.transaction)

    def _announce(self, result: Any) -> None:  # noqa: ANN401 - as above
        set_field(result, "enqueued_at", timezone.now())
        # The job is stored: an error of a receiver must not look as if it were not. Django logs it.
        task_enqueued.send_robust(type(self), task_result=result)

    def _prepare(self, task: Any, args: Any, kwargs: Any) -> tuple[Call[Any], Any]:  # noqa: ANN401 - as above
        """Return the call to enqueue, with an id, and its result."""
        self.validate_task(task)
        given = (None, *args) if task.takes_context else args
        try:
            inspect.signature(task.func).bind(*given, **kwargs)
            sent = {"args": plain(list(args)), "kwargs": plain(dict(kwargs))}
        except (TypeError, ValueError) as error:
            raise type(error)(f"Task {task.module_path} cannot be called with these arguments: {error}") from None
        due = due_at(task.run_after)
        opted: dict[str, Any] = {
            "retry": RETRY_DEFAULT,
            **self.settings.task_options,
            **getattr(task.func, ATTRIBUTE, {}),
            "id": new_id(),
            "queue": task.queue_name,
            "priority": our_priority(task.priority),
        }
        if due is not None:
            opted["run_at"] = due
        if (database := self.settings.transaction) is not None:
            opted |= self._in_transaction(database)
        more = {"priority": task.priority, "run_after": due and due.isoformat()}
        call = self.declare(task).opts(**opted).call(**sent, **{name: value for name, value in more.items() if value})
        result = TaskResult(
            task=task,
            id=opted["id"],
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=sent["args"],
            kwargs=sent["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        return call, result

    def _in_transaction(self, database: str) -> dict[str, Any]:
        """Return the option that enqueues in the transaction of a database, if one is open."""
        connection = connections[database]
        if connection.in_atomic_block:
            return {"tx": connection}
        if not connection.get_autocommit():
            # Whether and when it commits, nobody would be told.
            raise transaction.TransactionManagementError(
                f"TASKS[{self.alias!r}] enqueues in transactions of the database {database!r}, and that is in manual "
                "transaction management. Use atomic()."
            )
        return {}

    # -- results ----------------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> Any:  # noqa: ANN401 - as above
        """Return a result; raises `TaskResultDoesNotExist`, or `ImportError` if its task is not in this program."""
        refuse_on_loop("get_result", "aget_result")
        _check_id(result_id)
        try:
            view = self.app.sync.jobs.get(result_id)
        except JobNotFound:
            raise TaskResultDoesNotExist(result_id) from None
        return result_of(view, self.alias)

    async def aget_result(self, result_id: str) -> Any:  # noqa: ANN401 - as above
        """As `get_result`, for async code."""
        _check_id(result_id)
        try:
            view = await self.app.jobs.get(result_id)
        except JobNotFound:
            raise TaskResultDoesNotExist(result_id) from None
        return result_of(view, self.alias)

    # -- for workers ------------------------------------------------------------------------------------

    def declare(self, task: Any) -> Any:  # noqa: ANN401 - as above
        """Return a Django task as a task of the app."""
        app, name = self.app, task.module_path
        if (known := app.tasks.get(name)) is not None:
            return known
        retry = {"retry": RETRY_DEFAULT, **self.settings.task_options, **getattr(task.func, ATTRIBUTE, {})}["retry"]
        is_async = inspect.iscoroutinefunction(task.func)
        try:
            return app.task(name=name, queue=task.queue_name, retry=retry)(
                runner(app, type(self), self.alias, name, is_async=is_async)
            )
        except TaskExists:  # Another thread was quicker.
            return app.tasks[name]

    def working_app(self, imports: Iterable[str] = ()) -> Penstock:
        """Return the app with all tasks that this project has, for a worker."""
        for task in discover(imports).values():
            self.declare(task)
        return self.app


def _check_id(result_id: object) -> None:
    if not isinstance(result_id, str) or _UUID.fullmatch(result_id) is None:
        raise TaskResultDoesNotExist(result_id)
