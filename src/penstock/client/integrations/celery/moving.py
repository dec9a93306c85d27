"""`move`: calls of Celery tasks go to Penstock, from callers that stay as they are and from Celery's own workers."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Literal

from celery import canvas as celery_canvas
from celery.app.base import Celery

from penstock.client.app import Penstock
from penstock.client.errors import ClientError, TaskExists, TaskInvalid, TaskNotFound
from penstock.client.integrations.celery.adopting import AdoptedTask, adopt
from penstock.client.integrations.celery.calls import call_of, canvas_in, is_uuid, job_id_of
from penstock.client.integrations.celery.declaring import DEFAULT_STRATEGY
from penstock.client.integrations.celery.errors import CeleryUnsupported
from penstock.client.integrations.celery.forwarding import BACK_HEADER, strategy_of
from penstock.client.integrations.celery.results import MovedResult, blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.client.tasks.batch import BatchTask
    from penstock.client.tasks.task import RunIn, Task

_log = logging.getLogger("penstock.celery")

Canvas = Literal["refuse", "celery"]
_ATTRIBUTE = "_penstock_moves"


class Moves:
    """The moved tasks of one Celery app."""

    def __init__(self, celery_app: Any) -> None:  # noqa: ANN401 - Celery has no types
        self.celery_app = celery_app
        self.tasks: dict[str, Task[..., Any, Any] | BatchTask[Any, Any]] = {}
        """By name."""
        self._active: dict[str, Callable[[str], bool]] = {}
        self._canvas: dict[str, Canvas] = {}
        self._send_to_celery: Callable[..., Any] = celery_app.send_task
        celery_app.send_task = self.send_task

    @classmethod
    def of(cls, celery_app: Any) -> Moves:  # noqa: ANN401 - as above
        """Return those of an app, which from then on sends its calls by way of them."""
        found: Moves | None = getattr(celery_app, _ATTRIBUTE, None)
        if found is None:
            found = cls(celery_app)
            setattr(celery_app, _ATTRIBUTE, found)
            _guard_canvas()
        return found

    def is_active(self, name: str) -> bool:
        """Return whether calls of a task go to Penstock now."""
        return name in self.tasks and bool(self._active[name](name))

    def add(
        self,
        celery_task: Any,  # noqa: ANN401 - as above
        task: Task[..., Any, Any] | BatchTask[Any, Any],
        active: Callable[[str], bool],
        canvas: Canvas,
    ) -> None:
        """Have calls of a Celery task become jobs of a task of ours."""
        name = celery_task.name
        self.tasks[name] = task
        self._active[name] = active
        self._canvas[name] = canvas
        if isinstance(task, AdoptedTask):
            task.is_active = active
            task.send_back = functools.partial(self._send_back, name)
        celery_task.Strategy = strategy_of(self)

    # -- the caller's side ------------------------------------------------------------------------

    def send_task(
        self,
        name: str,
        args: Any = None,  # noqa: ANN401 - as above
        kwargs: Any = None,  # noqa: ANN401 - as above
        countdown: Any = None,  # noqa: ANN401 - as above
        eta: Any = None,  # noqa: ANN401 - as above
        task_id: Any = None,  # noqa: ANN401 - as above
        **options: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        """Send a call: to Penstock if its task is moved, and otherwise as Celery does."""
        given = {"countdown": countdown, "eta": eta, "task_id": task_id, **options}
        if not self.is_active(name) or self._continues(given):
            return self._send_to_celery(name, args, kwargs, **given)
        if canvas_in(given) and self._canvas[name] == "celery":
            _log.info("task %s stays with Celery for this call, which is part of a canvas", name)
            return self._send_to_celery(name, args, kwargs, **given)
        return self._enqueue(name, tuple(args or ()), dict(kwargs or {}), given)

    def result(self, task: str, task_id: str) -> MovedResult:
        """Return a handle of a call by the name of its task and its id. Nothing is looked up."""
        try:
            return self._handle(self.tasks[task], task_id)
        except KeyError:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise TaskNotFound(f"Task {task!r} is not moved. Moved are: {known}.") from None

    def check_canvas(self, signature: Any) -> None:  # noqa: ANN401 - as above
        """Raise `CeleryUnsupported` if a canvas has a moved task in it, unless that is left to Celery."""
        for name in _names_in(signature):
            if self.is_active(name) and self._canvas[name] == "refuse":
                raise CeleryUnsupported(
                    f"Task {name} is moved, and Celery's {type(signature).__name__.strip('_')} cannot follow it. Use "
                    "app.fan_out(…, then=…) for a group or a chord, and call(…).then(…) for a chain. Or leave calls "
                    'in a canvas to Celery: move(…, canvas="celery"). Nothing was sent.'
                )

    def _enqueue(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        task = self.tasks[name]
        task_id, call = call_of(self.celery_app, task, args, kwargs, options)
        accepted = blocking(call.task.app.enqueue_job_sync, call.new_job())
        if accepted.replayed and not is_uuid(task_id):
            raise CeleryUnsupported(
                f"There is a job for task_id={task_id!r} already, and a second one cannot have the same. Leave task_id "
                "out, or use task.opts(key=…) if you mean the same call."
            )
        return self._handle(task, task_id)

    def _handle(self, task: Task[..., Any, Any] | BatchTask[Any, Any], task_id: str) -> MovedResult:
        return MovedResult(task_id, task.job(job_id_of(task_id)), self.celery_app)

    def _continues(self, options: Mapping[str, Any]) -> bool:
        """Return whether Celery itself sends this, for a task that it runs: its retry, or what follows it.

        The task was sent to Celery, with whatever hangs on to it, so all of it stays there. A last link is forwarded
        by the worker that gets it.
        """
        if self.celery_app.current_worker_task is None:
            return False
        return bool(options.get("retries")) or bool(options.get("parent_id"))

    # -- the worker's side ------------------------------------------------------------------------

    def _send_back(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> None:
        """Send a job of a task that is no longer moved to Celery; return once the broker has it."""
        marked = {**options, "headers": {**options["headers"], BACK_HEADER: True}}
        self._send_to_celery(name, args, kwargs, add_to_parent=False, **marked)
        _log.info("task %s[%s] sent back to Celery", name, options["task_id"])


def move(
    celery_app: Any,  # noqa: ANN401 - as above
    app: Penstock,
    tasks: Iterable[Any],
    *,
    active: Callable[[str], bool] | None = None,
    canvas: Canvas = "refuse",
    run_in: RunIn = "thread",
) -> Moves:
    """Move tasks of a Celery app: from now on `delay`, `apply_async` and `send_task` enqueue jobs of `app`.

    `tasks` are Celery tasks or their names. Each is adopted, unless `app` has a task of its name already. Celery
    workers that load this forward what they still receive of these tasks, and acknowledge it once the job is durable.
    `active(name)` is asked at every call: while it is false, calls go to Celery as before, Celery runs them, and
    Penstock workers send what they still have back. Calls that are part of a canvas are refused; with
    `canvas="celery"` they are left to Celery.

    Raises `TaskNotFound`, `TaskInvalid` or `CeleryUnsupported`; then none of the tasks is moved.
    """
    if not isinstance(celery_app, Celery) or not isinstance(app, Penstock):
        raise TaskInvalid("move takes a Celery app, a Penstock app, and the tasks to move.")
    if canvas not in {"refuse", "celery"}:
        raise ValueError(f'canvas is "refuse" or "celery", not {canvas!r}.')
    if active is not None and not callable(active):
        raise TaskInvalid(f"active is a function of a task's name, not {active!r}.")
    found = [_find(celery_app, task) for task in _listed(tasks)]
    for celery_task in found:
        if celery_task.Strategy != DEFAULT_STRATEGY:
            raise TaskExists(f"Task {celery_task.name} is moved already.")
    made = _adopted(found, app, run_in)
    moves = Moves.of(celery_app)
    for celery_task, task in zip(found, made, strict=True):
        moves.add(celery_task, task, active or (lambda _name: True), canvas)
    return moves


def _adopted(found: list[Any], app: Penstock, run_in: RunIn) -> list[Task[..., Any, Any] | BatchTask[Any, Any]]:
    """Return a task for each Celery task; if one cannot be adopted, none is."""
    before = dict(app.tasks)
    try:
        return [app.tasks.get(each.name) or adopt(each, app, run_in=run_in) for each in found]
    except ClientError:
        for each in found:
            if each.name in app.tasks and each.name not in before:
                del app.tasks[each.name], each.retry, each.penstock
        raise


def _listed(tasks: Iterable[Any]) -> list[Any]:
    if isinstance(tasks, str) or not hasattr(tasks, "__iter__"):
        raise TaskInvalid(f"tasks is a list of Celery tasks or of their names, not {tasks!r}.")
    return list(tasks)


def _find(celery_app: Any, task: Any) -> Any:  # noqa: ANN401 - as above
    name = task if isinstance(task, str) else getattr(task, "name", None)
    if not isinstance(name, str):
        raise TaskInvalid(f"tasks is a list of Celery tasks or of their names, and {task!r} is neither.")
    try:
        return celery_app.tasks[name]
    except KeyError:
        known = ", ".join(sorted(one for one in celery_app.tasks if not one.startswith("celery.")))
        raise TaskNotFound(
            f"The Celery app has no task {name!r}. Import its module before move(…). Known are: {known or 'none'}."
        ) from None


def _names_in(signature: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    """Yield the names of all tasks in a canvas, and of what is linked to them."""
    waiting = [signature]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str) or not hasattr(one, "get"):
            continue
        inner = one.get("kwargs") or {}
        several = [one.get("tasks"), inner.get("tasks"), inner.get("header")]
        if one.get("task") not in {None, "celery.chain", "celery.group", "celery.chord"}:
            yield one["task"]
        options = one.get("options") or {}
        several += [options.get(name) for name in ("link", "link_error", "chain")]
        waiting += [each for many in several if many is not None for each in _each(many)]
        waiting += [single for single in (inner.get("body"), options.get("chord")) if single is not None]


def _each(many: Any) -> list[Any]:  # noqa: ANN401 - as above
    return [many] if hasattr(many, "get") else list(many)


@functools.cache
def _guard_canvas() -> None:
    """Look into every canvas before its first task is sent: half of one would be worse than none."""
    for kind in (celery_canvas.group, celery_canvas._chain, celery_canvas._chord):  # noqa: SLF001 - where Celery has them
        kind.apply_async = _guarded(kind.apply_async)


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply_async(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        moves: Moves | None = getattr(self.app, _ATTRIBUTE, None)
        if moves is not None and not moves._continues(options):  # noqa: SLF001 - a part of it
            moves.check_canvas(self)
        return original(self, *args, **options)

    return apply_async
