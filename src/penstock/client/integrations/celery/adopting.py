"""`adopt`: a task of ours that runs the function of a Celery task, by Celery's own rules."""

from __future__ import annotations

import functools
import inspect
import logging
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from celery import states
from celery.app.task import Task as CeleryTask
from celery.app.trace import TraceInfo, build_tracer
from celery.backends.base import DisabledBackend
from celery.exceptions import SoftTimeLimitExceeded

from penstock.client.errors import NoCurrentJob, TaskInvalid
from penstock.client.integrations.celery.codec import ABOUT, SENT_BACK, CeleryArguments, CeleryResult
from penstock.client.integrations.celery.declaring import check, failed, options_of
from penstock.client.integrations.celery.errors import CeleryUnsupported
from penstock.client.tasks.context import current
from penstock.client.tasks.retries import Discard, RetryAfter, Snooze
from penstock.client.tasks.task import RunIn, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.client.app import Penstock
    from penstock.client.tasks.context import Context
    from penstock.client.tasks.options import TaskOptions

_log = logging.getLogger("penstock.celery")

REQUEUE_S = 1.0
"""How long a job waits after `Reject(requeue=True)`."""
SEND_BACK_WAIT_S = 5.0
"""How long a job waits that Celery did not take back."""


class AdoptedTask(Task[..., Any, Any]):
    """A task that runs the function of a Celery task."""

    celery_task: Any
    is_active: Callable[[str], bool]
    """Whether the task is ours. If it is not, a job that is still here is sent to Celery."""
    send_back: Callable[[tuple[Any, ...], dict[str, Any], dict[str, Any]], None]
    """Send a call to Celery: its arguments, and what `send_task` takes besides."""

    @functools.cached_property
    def signature(self) -> CeleryArguments:
        """Writes and reads its arguments."""
        return CeleryArguments(self.name, self.function)

    @functools.cached_property
    def result(self) -> CeleryResult:
        """Writes and reads its result."""
        return CeleryResult(self.name)

    @functools.cached_property
    def tracer(self) -> Callable[..., Any]:
        """Runs the Celery task as Celery does: signals, handlers, `current_task`, and what libraries hang on to it.

        "Eager" means that it stores no results, which is done once the outcome is known.
        """
        task = self.celery_task
        tracer: Callable[..., Any] = build_tracer(task.name, task, app=task.app, eager=True, Info=_TraceInfo)
        return tracer


def adopt(
    celery_task: Any,  # noqa: ANN401 - Celery has no types
    app: Penstock,
    *,
    run_in: RunIn = "thread",
    **options: Unpack[TaskOptions],
) -> AdoptedTask:
    """Declare a task of `app` that runs the function of a Celery task, unchanged and under the same name.

    `bind`, `retry`, `autoretry_for`, handlers such as `on_failure`, signals and the result backend work as in Celery.
    What the Celery task was declared with becomes options of the task; `options` replace these. Raises
    `CeleryUnsupported` if something has no counterpart, `TaskInvalid` if it cannot be a task, and `TaskExists`.
    """
    if not isinstance(celery_task, CeleryTask):
        raise TaskInvalid(f"adopt takes a Celery task, such as one made with @app.task, not {celery_task!r}.")
    real = celery_task.app.tasks.get(celery_task.name)
    if real is None:
        raise TaskInvalid(f"The Celery app does not know its task {celery_task.name!r}. Register it first.")
    check(real, run_in, options)
    adopted: AdoptedTask
    function = _function(real, lambda args, kwargs: run(adopted, args, kwargs))
    adopted = AdoptedTask(app, function, name=real.name, run_in=run_in, options=options_of(real, options))
    adopted.celery_task = real
    adopted.is_active = lambda _name: True
    app._add(adopted, (adopted.name,))  # noqa: SLF001 - the app makes only plain tasks itself
    real.retry = _retrying(real, real.retry, adopted)
    real.penstock = adopted  # A child process finds it here.
    return adopted


def run(adopted: AdoptedTask, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - whatever the task returns
    """Run a Celery task for the job that runs now; raises what says how the attempt ended."""
    task = adopted.celery_task
    about = kwargs.pop(ABOUT, {})
    try:
        ctx = current()
    except NoCurrentJob:  # A direct call of the function.
        return task(*args, **kwargs)
    task_id = about.get("id", ctx.id)
    retries = about.get("retries", 0) + ctx.failures
    if _sent_back(adopted, args, kwargs, {"task_id": task_id, "retries": retries, "headers": about.get("headers", {})}):
        return SENT_BACK
    attempt = _Attempt(ctx, about, task_id, retries)
    request = attempt.request(adopted)
    try:
        with _soft_limit(adopted, about):
            returned, info, *_ = adopted.tracer(task_id, args, kwargs, request)
    except Exception as error:  # noqa: BLE001 - the user's own code, in Celery's handlers
        raise failed(error) from None
    outcome = _Outcome(task, task_id, request)
    if info is not None:
        raise outcome.error(info.state, info.retval.with_traceback(info.trace))
    if attempt.retry is not None:  # retry(throw=False)
        raise outcome.error(states.RETRY, attempt.retry)
    adopted.result.encode(returned)  # What cannot be written is a failure, and must not be stored as a success.
    outcome.store(states.SUCCESS, returned)
    return returned


def _sent_back(adopted: AdoptedTask, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> bool:
    """Return whether the call is Celery's now; raises `Snooze` if that cannot be found out, or Celery does not take it.

    An attempt that fails would bring the job closer to its end, although its task was not tried.
    """
    try:
        if adopted.is_active(adopted.name):
            return False
        adopted.send_back(args, kwargs, options)
    except Exception:  # noqa: BLE001 - the user's own switch, and whatever a broker raises
        _log.exception("task %s[%s] cannot be sent back to Celery yet", adopted.name, options["task_id"])
        raise Snooze(SEND_BACK_WAIT_S) from None
    return True


class _Attempt:
    """An attempt as the Celery task sees it: `self.request`."""

    def __init__(self, ctx: Context, about: dict[str, Any], task_id: str, retries: int) -> None:
        self._ctx = ctx
        self._about = about
        self._id = task_id
        self._retries = retries
        self.retry: Any = None
        """The `Retry` that the task asked for."""
        self.given: tuple[Any, Any] = ((), {})
        """The arguments that it has, when it asks for another attempt."""

    def request(self, adopted: AdoptedTask) -> dict[str, Any]:
        """Return what `self.request` is made of."""
        return {
            "id": self._id,
            "task": adopted.name,
            "root_id": self._id,
            "correlation_id": self._id,
            "retries": self._retries,
            "hostname": f"penstock@{socket.gethostname()}",
            "headers": self._about.get("headers", {}),
            "timelimit": [adopted.celery_task.time_limit, adopted.celery_task.soft_time_limit],
            "delivery_info": {
                "exchange": "",
                "routing_key": self._ctx.queue,
                "priority": None,
                "redelivered": self._ctx.losses > 0,
            },
            "penstock": self,
        }


class _Outcome:
    """What becomes of a job, by what Celery says of the attempt. The result backend hears of it, too."""

    def __init__(self, task: Any, task_id: str, request: dict[str, Any]) -> None:  # noqa: ANN401 - Celery has no types
        self._task = task
        self._id = task_id
        self._request = request

    def error(self, state: str, raised: Any) -> BaseException:  # noqa: ANN401 - as above
        """Return what to raise."""
        if state == states.RETRY:
            self._check_arguments(raised)
            self.store(state, raised.exc or raised)
            made = RetryAfter(_seconds_until(self._task, raised.when), str(raised.exc or ""))
            made.__cause__ = raised.exc if isinstance(raised.exc, BaseException) else None
            return made
        if state == states.FAILURE:
            self.store(state, raised)
            return failed(raised)
        if state == states.REJECTED and raised.requeue:
            return Snooze(REQUEUE_S)
        return Discard(str(raised) or "ignored")

    def store(self, state: str, value: Any) -> None:  # noqa: ANN401 - as above
        """Tell Celery's result backend, for those who still ask it. The job's own result does not depend on it."""
        backend = self._task.backend
        if isinstance(backend, DisabledBackend) or self._task.ignore_result:
            return
        try:
            backend.store_result(self._id, value, state, request=self._celery_request())
        except Exception:  # noqa: BLE001 - another system's, in any of its ways; the job's result is safe here
            _log.exception(
                "the Celery result backend did not take the state %s of task %s[%s]", state, self._task.name, self._id
            )

    def _celery_request(self) -> Any:  # noqa: ANN401 - as above
        from celery.app.task import Context as CeleryRequest  # noqa: PLC0415 - beside our own of that name

        return CeleryRequest({name: value for name, value in self._request.items() if name != "penstock"})

    def _check_arguments(self, raised: Any) -> None:  # noqa: ANN401 - as above
        asked = raised.sig
        if asked is None:
            return
        own = inspect.signature(self._task.run)
        before = own.bind(*self._request["penstock"].given[0], **self._request["penstock"].given[1]).arguments
        if own.bind(*asked.args, **asked.kwargs).arguments != before:
            raise failed(
                CeleryUnsupported(
                    f"Task {self._task.name} retries itself with other arguments. A job keeps its own: enqueue a new "
                    "call, and return."
                )
            )


def _function(task: Any, work: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> Callable[..., Any]:  # noqa: ANN401 - as above
    """Return a function with the parameters of a Celery task, without its `self`."""

    def function(*args, **kwargs):  # type: ignore[no-untyped-def] # noqa: ANN002, ANN003, ANN202 - annotations are the task's
        return work(args, kwargs)

    function.__module__ = type(task).__module__
    function.__name__ = type(task).__name__
    function.__qualname__ = f"{getattr(task, '__qualname__', type(task).__name__)}.penstock"
    function.__doc__ = task.__doc__
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(task.run).parameters.values()
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # `inspect` looks for it.
    return function


class _TraceInfo(TraceInfo):  # type: ignore[misc] # Celery has no types.
    """How an attempt ended, with the traceback, which Celery removes from the exception."""

    __slots__ = ("trace",)

    def __init__(self, state: str, retval: Any = None) -> None:  # noqa: ANN401 - as above
        super().__init__(state, retval)
        self.trace = getattr(retval, "__traceback__", None)


def _retrying(task: Any, original: Callable[..., Any], adopted: AdoptedTask) -> Callable[..., Any]:  # noqa: ANN401 - as above
    """Return `retry` of a Celery task, which in a job of ours sends nothing and says what is wanted."""

    @functools.wraps(original)
    def retry(
        args: Any = None,  # noqa: ANN401 - as above
        kwargs: Any = None,  # noqa: ANN401 - as above
        exc: Any = None,  # noqa: ANN401 - as above
        throw: bool = True,  # noqa: FBT001, FBT002 - the signature is Celery's
        **options: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        request = task.request
        attempt = getattr(request, "penstock", None)
        if attempt is None:
            return original(args, kwargs, exc, throw, **options)
        _check_retry(task, options, adopted)
        attempt.given = (request.args, request.kwargs)
        request.is_eager = True  # In a task that is run eagerly, Celery leaves it to the caller to run it again.
        try:
            attempt.retry = original(args, kwargs, exc, throw=False, **options)
        finally:
            request.is_eager = False
        if throw:
            raise attempt.retry
        return attempt.retry

    return retry


def _check_retry(task: Any, options: dict[str, Any], adopted: AdoptedTask) -> None:  # noqa: ANN401 - as above
    unknown = options.keys() - {"eta", "countdown", "max_retries"}
    if unknown:
        raise CeleryUnsupported(
            f"Task {task.name} retries itself with {', '.join(sorted(unknown))}, which cannot change between attempts."
        )
    wanted = options.get("max_retries")
    assert adopted.retry is not None, "an adopted task has a policy"
    if wanted is not None and wanted >= adopted.retry.attempts:
        raise CeleryUnsupported(
            f"Task {task.name} retries itself with max_retries={wanted}, but its jobs have {adopted.retry.attempts} "
            f"attempts. Set max_retries on the task, or adopt it with retry=Retry(attempts={wanted + 1})."
        )


def _seconds_until(task: Any, when: Any) -> float:  # noqa: ANN401 - as above
    """Return how long to wait: Celery has a number of seconds, or an instant."""
    if when is None:
        return 0.0
    if isinstance(when, int | float):
        return max(float(when), 0.0)
    from penstock.client.integrations.celery.calls import instant_of  # noqa: PLC0415 - it needs the rest

    left_s: float = (instant_of(task.app, when) - task.app.now()).total_seconds()
    return max(left_s, 0.0)


@contextmanager
def _soft_limit(adopted: AdoptedTask, about: dict[str, Any]) -> Iterator[None]:
    """Raise `SoftTimeLimitExceeded` in the task's code once its soft limit is over. Only a child process can."""
    limit_s = about.get("soft_time_limit", adopted.celery_task.soft_time_limit)
    if not limit_s or adopted.run_in != "process" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def exceeded(_number: int, _frame: object) -> None:
        raise SoftTimeLimitExceeded(limit_s)

    before = signal.signal(signal.SIGALRM, exceeded)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
