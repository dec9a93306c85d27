"""The part of `Penstock` that is about tasks: how they are declared and found."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, Unpack, cast, overload

from penstock.client.errors import TaskExists, TaskInvalid, TaskNotFound
from penstock.client.tasks.batch import BatchTask
from penstock.client.tasks.context import Context
from penstock.client.tasks.enqueueing import Enqueueing
from penstock.client.tasks.task import RunIn, Task, check_name, name_of

if TYPE_CHECKING:
    from penstock.client.durations import Duration
    from penstock.client.tasks.decorators import BatchDecorator, CronDecorator, TaskDecorator
    from penstock.client.tasks.options import TaskOptions
    from penstock.client.tasks.testing import AppTesting
    from penstock.client.verbs.caller import Caller
    from penstock.client.verbs.schedules import Schedules

P = ParamSpec("P")
T = TypeVar("T")

Next = Callable[[Context], Awaitable[object]]
Middleware = Callable[[Context, Next], Awaitable[object]]
FailureHook = Callable[[Context, Exception], object]
MiddlewareT = TypeVar("MiddlewareT", bound=Middleware)
FailureHookT = TypeVar("FailureHookT", bound=FailureHook)


class Cron(NamedTuple):
    """A task that the server enqueues by itself."""

    task: Task[[], Any, Any]
    expression: str
    zone: str
    unique: bool

    @property
    def name(self) -> str:
        """What its schedule is called on the server."""
        return CRON_PREFIX + self.task.name

    async def save(self, schedules: Schedules) -> None:
        """Create its schedule, or replace the one of this name."""
        fields = {name: value for name, value in self.task.fields.items() if name != "queue"}
        if self.unique:
            fields["unique_key"] = self.name
        await schedules.put(
            self.name, self.task.queue, self.task.name, {}, cron=self.expression, zone=self.zone, **fields
        )


CRON_PREFIX = "cron:"


class TaskApp(Enqueueing):
    """Declares tasks, finds them by name, and enqueues calls of them."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self.tasks: dict[str, Task[..., Any, Any] | BatchTask[Any, Any]] = {}
        """All tasks by their names and aliases."""
        self.crons: list[Cron] = []
        self.middlewares: list[Middleware] = []
        self.failure_hooks: list[FailureHook] = []
        self.kind_of: Callable[[BaseException], str] | None = None
        """How the class of an exception is named in a failure; None is its name without the module."""
        self._included: list[str] = []

    # -- declaring --------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def task(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        run_in: RunIn = "thread",
        **options: Unpack[TaskOptions],
    ) -> TaskDecorator: ...
    def task(  # type: ignore[misc] # mypy does not see that `given` takes what `Unpack` names.
        self,
        function: Callable[..., Any] | None = None,
        /,
        **given: Any,
    ) -> Any:
        """Make a function a task: `@app.task`, or `@app.task(queue="mail", timeout=30, retry=Retry(attempts=5))`.

        `name` replaces the name, which is the function's module and name. `aliases` are earlier names, whose jobs are
        still taken. A plain function runs in a thread of the worker, or, with `run_in="process"`, in a process that can
        be ended at its timeout.
        """

        def declare(function: Callable[..., Any]) -> Task[..., Any, Any]:
            return self._declare(function, **given)

        return declare if function is None else declare(function)

    def cron(
        self,
        expression: str,
        *,
        zone: str = "UTC",
        unique: bool = False,
        name: str | None = None,
        aliases: Iterable[str] = (),
        run_in: RunIn = "thread",
        **options: Unpack[TaskOptions],
    ) -> CronDecorator:
        """Have the server enqueue a task by a cron expression in a time zone, once, however many workers run.

        Workers save the schedule when they start; `penstock schedule prune` removes those whose task is gone. With
        `unique` nothing is enqueued while the job before is unfinished. The function takes no arguments.
        """
        _check_cron(expression, zone)

        def declare(function: Callable[[], Any]) -> Task[[], Any, Any]:
            task = self._declare(function, name=name, aliases=aliases, run_in=run_in, **options)
            for parameter in inspect.signature(function).parameters.values():
                if parameter.default is inspect.Parameter.empty:
                    raise TaskInvalid(f"Task {task.name} runs by the clock, so nobody gives it its {parameter.name}.")
            self.crons.append(Cron(task, expression, zone, unique))
            return task

        return cast("CronDecorator", declare)

    def batch_task(
        self,
        *,
        size: int = 100,
        linger: Duration = 0.1,
        name: str | None = None,
        aliases: Iterable[str] = (),
        **options: Unpack[TaskOptions],
    ) -> BatchDecorator:
        """Make a function that takes a list of items a task of one item: workers collect up to `size` of them.

        Jobs that wait for others to come are not accepted yet, so the wait costs no attempt.
        """

        def declare(function: Callable[[list[Any]], Any]) -> BatchTask[Any, Any]:
            task: BatchTask[Any, Any] = BatchTask(
                cast("Any", self),
                function,
                name=name_of(function) if name is None else name,
                size=size,
                linger=linger,
                aliases=_names(aliases),
                options=options,
            )
            self._add(task, (task.name, *task.task.aliases))
            return task

        return cast("BatchDecorator", declare)

    def middleware(self, function: MiddlewareT) -> MiddlewareT:
        """Run `function(ctx, call_next)` around every attempt; the first that was added is the outermost."""
        if not callable(function):
            raise TaskInvalid(f"A middleware is a function of a context and what to call next, not {function!r}.")
        self.middlewares.append(function)
        return function

    def on_failure(self, function: FailureHookT) -> FailureHookT:
        """Call `function(ctx, error)` in the worker after each attempt that failed. It may be a coroutine."""
        if not callable(function):
            raise TaskInvalid(f"A failure hook is a function of a context and an exception, not {function!r}.")
        self.failure_hooks.append(function)
        return function

    def include(self, *modules: str) -> None:
        """Import these modules, for the tasks in them, when a worker starts or a task is looked for."""
        named: tuple[object, ...] = modules
        for module in named:
            if not isinstance(module, str) or not module or module.startswith("."):
                raise TaskInvalid(f'include takes the names of modules, such as "shop.tasks", not {module!r}.')
        self._included.extend(modules)

    def import_tasks(self) -> None:
        """Import what `include` named; raises what the imports raise."""
        # A module may include others, or look for tasks, while it is imported. To import one again is cheap.
        for module in self._included:
            try:
                import_module(module)
            except ImportError as error:
                error.add_note(f"It was imported because of app.include({module!r}).")
                raise

    def find_task(self, name: str) -> Task[..., Any, Any] | BatchTask[Any, Any]:
        """Return a task by its name or an alias; raises `TaskNotFound`."""
        self.import_tasks()
        try:
            return self.tasks[name]
        except KeyError:
            raise TaskNotFound(
                f"There is no task {name!r}. Import its module, or name it in app.include(…). "
                f"Known are: {', '.join(sorted(self.tasks)) or 'none'}."
            ) from None

    # -- testing ----------------------------------------------------------------------------------

    def testing(self) -> AppTesting:
        """Test tasks on an engine in memory: `with app.testing() as t:`, or `async with` where an event loop runs.

        Inside the block all calls of the app go to that engine, whatever the app's URL is. Nothing runs and no time
        passes unless the test says so: `t.run_all()`, `t.clock.advance(days=14)`.
        """
        from penstock.client.tasks.testing import AppTesting  # noqa: PLC0415 - only tests load the engine

        return AppTesting(cast("Any", self))

    # -- inside -----------------------------------------------------------------------------------

    def _declare(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        run_in: RunIn = "thread",
        **options: Unpack[TaskOptions],
    ) -> Task[..., Any, Any]:
        task: Task[..., Any, Any] = Task(
            cast("Any", self),
            function,
            name=name_of(function) if name is None else name,
            aliases=_names(aliases),
            run_in=run_in,
            options=options,
        )
        self._add(task, (task.name, *task.aliases))
        return task

    def _add(self, task: Task[..., Any, Any] | BatchTask[Any, Any], names: tuple[str, ...]) -> None:
        for name in names:
            check_name(name)
            if name in self.tasks:
                raise TaskExists(f"There are two tasks named {name!r}: {_home(self.tasks[name])} and {_home(task)}.")
        self.tasks.update(dict.fromkeys(names, task))


def _names(aliases: Iterable[str]) -> tuple[str, ...]:
    if isinstance(aliases, str):
        raise TaskInvalid(f"aliases is a list of names, such as [{aliases!r}].")
    return tuple(aliases)


def _home(task: Task[..., Any, Any] | BatchTask[Any, Any]) -> str:
    function = task.many if isinstance(task, BatchTask) else task.function
    return f"{function.__module__}.{function.__qualname__}"


def _check_cron(expression: str, zone: str) -> None:
    """Raise `TaskInvalid` unless the expression fires some time."""
    if not isinstance(expression, str):
        raise TaskInvalid(f'A cron expression is a text, such as @app.cron("0 3 * * *"), not {expression!r}.')
    if not isinstance(zone, str):
        raise TaskInvalid(f'zone is the name of a time zone, such as "Europe/Berlin", not {zone!r}.')
    from penstock.domain.job import JobDraft  # noqa: PLC0415 - only who has schedules loads this
    from penstock.domain.job_errors import ScheduleInvalid  # noqa: PLC0415 - as above
    from penstock.domain.schedule import Schedule, check  # noqa: PLC0415 - as above

    draft = JobDraft(id="", task="cron", payload=b"{}")
    try:
        check(Schedule(name="cron", queue="cron", draft=draft, cron=expression, zone=zone))
    except ScheduleInvalid as error:
        raise TaskInvalid(error.reason) from None
