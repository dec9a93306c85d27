"""`Task`: a function that can be enqueued, and `Call`: one call of it that has not been enqueued yet."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack

import msgspec

from penstock.client.errors import TaskInvalid
from penstock.client.loops import refuse_on_loop
from penstock.client.requests import NewJob
from penstock.client.tasks.codec import Result, Signature, check_parameters
from penstock.client.tasks.job import Job
from penstock.client.tasks.options import CallOptions, TaskOptions, fields_of
from penstock.client.tracing import traceparent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.client.app import Penstock
    from penstock.client.tasks.flows import Chain
    from penstock.client.tasks.retries import Retry
    from penstock.wire.jobs.answers import Accepted

QUEUE_DEFAULT = "default"
NAME_LENGTH_MAX = 200

RunIn = Literal["thread", "process"]

P = ParamSpec("P")
C = TypeVar("C")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
A_contra = TypeVar("A_contra", contravariant=True)
B_contra = TypeVar("B_contra", contravariant=True)


class Takes(Protocol[A_contra, T_co]):
    """A task that can be called with one argument."""

    def call(self, argument: A_contra, /) -> Call[T_co]:
        """Return the call."""


class TakesTwo(Protocol[A_contra, B_contra, T_co]):
    """A task that can be called with two arguments."""

    def call(self, first: A_contra, second: B_contra, /) -> Call[T_co]:
        """Return the call."""


class Task(Generic[P, C, T]):
    """A function that can be enqueued: `P` are its parameters, `C` what a direct call returns, `T` its result.

    Call it to run it here and now, as the plain function that it is. Await `enqueue`, or call `enqueue_sync`, to have a
    worker run it.
    """

    def __init__(
        self,
        app: Penstock,
        function: Callable[P, C],
        *,
        name: str,
        aliases: Sequence[str] = (),
        run_in: RunIn = "thread",
        options: TaskOptions,
    ) -> None:
        check_function(name, function)
        # Attributes of the function are not taken over: they would hide methods of this class.
        functools.update_wrapper(self, function, updated=())
        self.app = app
        self.function = function
        self.name = name
        self.aliases = tuple(aliases)
        self.is_async = inspect.iscoroutinefunction(function)
        self.run_in = run_in
        self.retry: Retry | None = options.get("retry")
        self.fields = fields_of({"queue": QUEUE_DEFAULT, **options}, TaskOptions)
        """What all of its jobs have, by the names of the job API."""
        check_name(name)
        check_parameters(name, function)
        if run_in not in {"thread", "process"}:
            raise TaskInvalid(f'run_in is "thread" or "process", not {run_in!r}.')
        if run_in == "process" and self.is_async:
            raise TaskInvalid(
                f"Task {name} is async and runs on the event loop. Only a plain function can run in a process."
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Task[P, C, T]:
        if instance is not None:
            raise TaskInvalid(f"Task {self.name} is a method. A worker has no object to call it on: use a function.")
        return self

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    @property
    def queue(self) -> str:
        """The queue that its jobs wait in, unless a call says otherwise."""
        queue: str = self.fields["queue"]
        return queue

    # Types are resolved on first use: annotations may name what stands further down in the module.

    @functools.cached_property
    def signature(self) -> Signature:
        """Writes and reads its arguments."""
        return Signature(self.name, self.function)

    @functools.cached_property
    def result(self) -> Result:
        """Writes and reads its result."""
        return Result.of(self.name, self.function)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        """Have a worker call the function with these arguments.

        Raises `ArgumentsInvalid` if they do not fit, `TooMany` if the queue is full, a `TransportError` if no server
        answers. A lost answer never enqueues the job twice.
        """
        return await Call(self, self.signature.encode(args, kwargs), self.fields).enqueue()

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        """Enqueue from code without an event loop; raises `WrongThread` where one runs."""
        return Call(self, self.signature.encode(args, kwargs), self.fields).enqueue_sync()

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """Return the call without enqueueing it, for `enqueue_many`, `fan_out` and `then`."""
        return Call(self, self.signature.encode(args, kwargs), self.fields)

    def opts(self, **options: Unpack[CallOptions]) -> Opted[P, T]:
        """Return the task with options for the next call: `await confirm.opts(delay=60).enqueue(17)`."""
        return Opted(self, self.fields | fields_of(options), options.get("tx"))

    def job(self, job_id: str) -> Job[T]:
        """Return a handle of a job of this task by its id. Nothing is looked up."""
        return Job(self.app, job_id, self.result.decode)


class Opted(Generic[P, T]):
    """A task with options of one call."""

    __slots__ = ("fields", "task", "tx")

    def __init__(self, task: Task[P, Any, T], fields: dict[str, Any], tx: object = None) -> None:
        self.task = task
        self.fields = fields
        self.tx = tx

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        """As `Task.enqueue`."""
        return await self.call(*args, **kwargs).enqueue()

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        """As `Task.enqueue_sync`."""
        return self.call(*args, **kwargs).enqueue_sync()

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """As `Task.call`."""
        return Call(self.task, self.task.signature.encode(args, kwargs), self.fields, self.tx)


class Call(Generic[T_co]):
    """A call of a task that has not been enqueued. It can be enqueued many times; each is a job of its own."""

    __slots__ = ("fields", "payload", "task", "tx")

    def __init__(self, task: Task[..., Any, T_co], payload: bytes, fields: dict[str, Any], tx: object = None) -> None:
        self.task = task
        self.payload = payload
        """JSON text: an object by the names of the parameters."""
        self.fields = fields
        self.tx = tx
        """The connection in whose transaction it is enqueued; None: at once."""

    def __repr__(self) -> str:
        return f"Call({self.task.name!r}, {self.payload.decode()})"

    def new_job(self) -> NewJob:
        """Return the job to enqueue, without an id unless the options have one."""
        job = NewJob(task=self.task.name, payload=msgspec.Raw(self.payload), **self.fields)
        if (trace := traceparent()) is not None:
            job.traceparent = trace
        return job

    async def enqueue(self) -> Job[T_co]:
        """As `Task.enqueue`."""
        app = self.task.app
        if self.tx is not None and app.stages():
            [staged] = await app.stage([self], self.tx)
            return staged
        return self.handle(await app.enqueue_job(self.new_job()))

    def enqueue_sync(self) -> Job[T_co]:
        """As `Task.enqueue_sync`."""
        refuse_on_loop(f"{self.task.name}.enqueue_sync", "enqueue")
        app = self.task.app
        if self.tx is not None and app.stages():
            [staged] = app.stage_sync([self], self.tx)
            return staged
        return self.handle(app.enqueue_job_sync(self.new_job()))

    def then(self, task: Takes[T_co, U]) -> Chain[U]:
        """Return a chain: `task` runs with this call's result once this call has succeeded."""
        from penstock.client.tasks.flows import Chain  # noqa: PLC0415 - it builds on this module

        return Chain.of(self, task)

    def staged(self, job_id: str) -> Job[T_co]:
        """Return a handle of the job that this call becomes when a transaction commits."""
        return Job(self.task.app, job_id, self.task.result.decode)

    def handle(self, accepted: Accepted) -> Job[T_co]:
        """Return a handle of the job that this call became."""
        return Job(
            self.task.app,
            accepted.id,
            self.task.result.decode,
            replayed=accepted.replayed,
            duplicate=accepted.duplicate,
            replaced=accepted.replaced,
        )


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function's task: where it is imported from. Raises `TaskInvalid` if that is nowhere."""
    if not callable(function):
        raise TaskInvalid(f"A task is made of a function, not of {function!r}. Options have names: @app.task(queue=…).")
    module = getattr(function, "__module__", None)
    if not hasattr(function, "__qualname__"):
        raise TaskInvalid(f"A task has to be a function, not {function!r}.")
    qualname = function.__qualname__
    short = qualname.rpartition(".")[2].strip("<>")
    if module in {None, "__main__"}:
        raise TaskInvalid(
            f"{qualname} is in the program that runs now, whose name a worker cannot know. "
            f'Move it to a module, or name it: @app.task(name="{short}").'
        )
    if "<" in qualname:
        raise TaskInvalid(
            f"{qualname} is made inside a function, so a worker cannot import it. "
            f'Move it to the top of its module, or name it: @app.task(name="{short}").'
        )
    return f"{module}.{qualname}"


def check_name(name: object) -> None:
    """Raise `TaskInvalid` unless a task can have this name."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise TaskInvalid(f"The name of a task is 1 to {NAME_LENGTH_MAX} printable characters, not {name!r}.")


def check_function(name: str, function: object) -> None:
    """Raise `TaskInvalid` unless a worker could call this."""
    if isinstance(function, classmethod | staticmethod) or _is_method(function):
        raise TaskInvalid(f"Task {name} is a method. A worker has no object to call it on: use a function.")
    if not callable(function) or not (inspect.isroutine(inspect.unwrap(function)) or hasattr(function, "__wrapped__")):
        raise TaskInvalid(f"Task {name} has to be a function, not {function!r}.")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TaskInvalid(
            f"Task {name} is a generator. A task returns its result: publish events for what comes before."
        )


def _is_method(function: object) -> bool:
    """Return whether a function is one of a class, as its body is read: no object is bound yet."""
    code = getattr(function, "__code__", None)
    inside, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    return bool(inside and not inside.endswith("<locals>") and code and code.co_varnames[:1] in {("self",), ("cls",)})
