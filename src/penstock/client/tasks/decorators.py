"""What `app.task(…)`, `app.cron(…)` and `app.batch_task(…)` return, as type checkers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.client.tasks.batch import BatchTask
    from penstock.client.tasks.task import Task

P = ParamSpec("P")
T = TypeVar("T")
X = TypeVar("X")
Y = TypeVar("Y")


class TaskDecorator(Protocol):
    """What `app.task(…)` returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Make a function a task."""


class CronDecorator(Protocol):
    """What `app.cron(…)` returns."""

    @overload
    def __call__(self, function: Callable[[], Coroutine[Any, Any, T]], /) -> Task[[], Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(self, function: Callable[[], T], /) -> Task[[], T, T]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Make a function a task that runs by the clock."""


class BatchDecorator(Protocol):
    """What `app.batch_task(…)` returns."""

    @overload
    def __call__(
        self, function: Callable[[list[X]], Coroutine[Any, Any, list[Y | Exception]]], /
    ) -> BatchTask[X, Y]: ...
    @overload
    def __call__(self, function: Callable[[list[X]], Coroutine[Any, Any, list[Y]]], /) -> BatchTask[X, Y]: ...
    @overload
    def __call__(self, function: Callable[[list[X]], list[Y | Exception]], /) -> BatchTask[X, Y]: ...
    @overload
    def __call__(self, function: Callable[[list[X]], list[Y]], /) -> BatchTask[X, Y]: ...
    def __call__(self, function: Callable[[list[Any]], Any], /) -> Any:
        """Make a function a task of one item."""
