"""`BatchTask`: a function that takes many items at once, each of which is a job of its own."""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from penstock.client.durations import Duration, seconds
from penstock.client.errors import TaskInvalid
from penstock.client.tasks.codec import check_parameters, hints_of, without_errors
from penstock.client.tasks.task import Opted, Task, check_function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.client.app import Penstock
    from penstock.client.tasks.job import Job
    from penstock.client.tasks.options import CallOptions, TaskOptions
    from penstock.client.tasks.task import Call

SIZE_MAX = 500
LINGER_S_MAX = 5.0
"""Half of the time that a worker has to accept what it is offered, unless its queue says otherwise."""

X = TypeVar("X")
Y = TypeVar("Y")


class BatchTask(Generic[X, Y]):
    """A task whose worker collects up to `size` jobs for up to `linger` seconds, and calls the function with a list.

    Each job has one item and ends by itself: the function returns a list of as many results, in the same order, and an
    exception in it fails the job of that item alone. An exception that is raised fails all of them.
    """

    def __init__(
        self,
        app: Penstock,
        function: Callable[[list[X]], Any],
        *,
        name: str,
        size: int,
        linger: Duration,
        aliases: Sequence[str],
        options: TaskOptions,
    ) -> None:
        check_function(name, function)
        parameters = check_parameters(name, function)
        if len(parameters) != 1 or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
            raise TaskInvalid(f"Batch task {name} needs exactly one parameter, a list.")
        if type(size) is not int or not 1 <= size <= SIZE_MAX:
            raise TaskInvalid(f"The size of batch task {name} is a whole number from 1 to {SIZE_MAX}, not {size!r}.")
        self.size = size
        self.linger_s = seconds(linger, "linger")
        if self.linger_s > LINGER_S_MAX:
            raise TaskInvalid(f"Batch task {name} can linger for at most {LINGER_S_MAX:g} seconds: offers lapse.")
        self.many = function
        self._parameter = parameters[0].name
        hints = hints_of(name, function)
        item = _item(hints.get(self._parameter, Any), name, f"takes a list in {self._parameter}")
        result = _item(hints.get("return", Any), name, "returns a list")

        # One item as a task of its own writes and reads it.
        def one(item: Any) -> Any:  # noqa: ANN401 - any type, as annotated
            raise AssertionError(f"{name} is called with lists, not with {item!r}")

        one.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # As `inspect` documents it.
            [inspect.Parameter(self._parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=item)]
        )
        one.__annotations__ = {self._parameter: item, "return": without_errors(result)}
        one.__module__, one.__qualname__ = function.__module__, function.__qualname__
        self.task: Task[[X], Any, Y] = Task(app, one, name=name, aliases=aliases, options=options)
        self.task.is_async = inspect.iscoroutinefunction(function)

    def __call__(self, items: list[X]) -> Any:  # noqa: ANN401 - as the function is: a list, or an awaitable of one
        return self.many(items)

    def __repr__(self) -> str:
        return f"BatchTask({self.name!r})"

    @property
    def name(self) -> str:
        """Its name."""
        return self.task.name

    async def enqueue(self, item: X) -> Job[Y]:
        """Enqueue one item, as `Task.enqueue` does."""
        return await self.task.enqueue(item)

    def enqueue_sync(self, item: X) -> Job[Y]:
        """Enqueue one item, as `Task.enqueue_sync` does."""
        return self.task.enqueue_sync(item)

    def call(self, item: X) -> Call[Y]:
        """Return a call with one item, as `Task.call` does."""
        return self.task.call(item)

    def opts(self, **options: Unpack[CallOptions]) -> Opted[[X], Y]:
        """Return the task with options for the next call."""
        return self.task.opts(**options)

    def job(self, job_id: str) -> Job[Y]:
        """Return a handle of a job of this task by its id. Nothing is looked up."""
        return self.task.job(job_id)


def _item(kind: Any, name: str, what: str) -> Any:  # noqa: ANN401 - any type, as annotations are
    if kind is Any:
        return Any
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is not list or len(arguments) != 1:
        raise TaskInvalid(f"Batch task {name} {what}; its annotation has to be list[…], not {kind}.")
    return arguments[0]
