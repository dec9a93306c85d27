"""`Context`: what a task knows of the job that it runs for, and what it can say about it."""

from __future__ import annotations

import asyncio
import inspect
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from penstock.client.errors import EventInvalid, NoCurrentJob, ResultTooLarge, StepInvalid
from penstock.client.tasks.codec import Result, encode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    import msgspec

    from penstock.client.transactions.inbox import Once

P = ParamSpec("P")
T = TypeVar("T")

STEP = "step"
"""The kind of the event that records the result of a step."""
STEP_NAME_LENGTH_MAX = 150
STEP_BYTES_MAX = 64 * 1024 - 2 * 1024
"""Of the result of a step: an event's data holds it and the name, which JSON may write with six bytes a character."""
EVENT_BYTES_MAX = 64 * 1024
KIND_LENGTH_MAX = 200


class Running(Protocol):
    """What runs now. Its context is made when it is first asked for: most tasks do without."""

    @property
    def context(self) -> Context: ...


_current: ContextVar[Running] = ContextVar("penstock_job")


class JobInfo(Protocol):
    """What is known of a job when its attempt begins."""

    @property
    def id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def losses(self) -> int: ...
    @property
    def tenant(self) -> str: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def correlation_id(self) -> str: ...
    @property
    def enqueued_at_ms(self) -> int: ...


class Records(Protocol):
    """Where the events of an attempt go, and where the steps of earlier attempts come from."""

    def add(self, kind: str, data: bytes) -> None:
        """Keep an event until the next flush. It is sent before the attempt ends, or the attempt fails."""

    async def record(self, step: str, result: bytes) -> None:
        """Return once the result of a step is durable."""

    async def recorded(self) -> dict[str, msgspec.Raw]:
        """Return the results of all steps that are recorded, by name."""

    def record_sync(self, step: str, result: bytes) -> None:
        """As `record`, from a thread without an event loop."""

    def recorded_sync(self) -> dict[str, msgspec.Raw]:
        """As `recorded`, from a thread without an event loop."""


class Published:
    """What `progress` and `publish` return: it may be awaited, and need not be."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_published = Published()


class Context:
    """The job that runs now, as its task sees it. `current()` returns it."""

    __slots__ = (
        "_open_records",
        "_opened",
        "_progress",
        "_steps",
        "_used_steps",
        "cancelled",
        "deadline",
        "info",
        "task",
        "worker",
    )

    def __init__(
        self, info: JobInfo, task: str, open_records: Callable[[], Records], deadline: float, worker: str = ""
    ) -> None:
        self.info = info
        self.worker = worker
        """The name of the worker that runs it; empty where there is none, as in a test or in a child process."""
        self.task = task
        """The name of the task."""
        self.deadline = deadline
        """The instant of `time.monotonic()` at which this attempt is stopped."""
        self.cancelled = False
        """Whether to stop: somebody cancelled the job, its time is up, its lease is over, or the worker stops.

        An async task gets `asyncio.CancelledError` besides; a function in a thread has to look at this.
        """
        self._open_records = open_records
        self._opened: Records | None = None
        self._steps: dict[str, msgspec.Raw] | None = None
        self._used_steps: set[str] = set()
        self._progress = ""

    def __repr__(self) -> str:
        return f"Context(job {self.id}, task {self.task}, attempt {self.attempt})"

    @property
    def context(self) -> Context:
        """Itself, as `Running` has it."""
        return self

    @property
    def id(self) -> str:
        """The job's id."""
        return self.info.id

    @property
    def queue(self) -> str:
        """The queue that the job came from."""
        return self.info.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. It grows with every attempt, so it can fence writes to other systems."""
        return self.info.attempt

    @property
    def failures(self) -> int:
        """How many attempts failed before this one."""
        return self.info.failures

    @property
    def losses(self) -> int:
        """How many attempts were lost before this one, with their workers."""
        return self.info.losses

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self.info.tenant

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags."""
        return self.info.tags

    @property
    def time_left(self) -> float:
        """How many seconds are left until the deadline."""
        return self.deadline - time.monotonic()

    @property
    def progress_text(self) -> str:
        """What the task last said of its progress, as `3 of 10`."""
        return self._progress

    @property
    def _records(self) -> Records:
        # Most jobs publish nothing.
        if self._opened is None:
            self._opened = self._open_records()
        return self._opened

    def progress(self, done: float, *, of: float | None = None, note: str = "") -> Published:
        """Publish how far the task is: an event of the kind `progress`."""
        for number in (done, of):
            if number is not None and type(number) not in {int, float}:
                raise EventInvalid(f"Progress is said in numbers, such as progress(3, of=10), not {number!r}.")
        self._progress = _number(done) if of is None else f"{_number(done)} of {_number(of)}"
        data: dict[str, Any] = {"done": done}
        if of is not None:
            data["of"] = of
        if note:
            data["note"] = note
        return self.publish("progress", data)

    def publish(self, kind: str, data: Any = None) -> Published:  # noqa: ANN401 - any JSON
        """Publish an event of the job. Events are sent in batches, and always before the attempt ends.

        Raises `EventInvalid` if `data` cannot be written as JSON, or has more than 64 KiB.
        """
        _check_kind(kind)
        try:
            written = encode_value(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise EventInvalid(f"The data of event {kind!r} cannot be sent: {error}.") from None
        if len(written) > EVENT_BYTES_MAX:
            raise EventInvalid(
                f"The data of event {kind!r} has {len(written):,} bytes, and {EVENT_BYTES_MAX:,} at most are allowed."
            )
        self._records.add(kind, written)
        return _published

    @overload
    async def step(
        self, name: str, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function` and record its result; in a later attempt of this job return the recorded result instead.

        A recorded step is never run again. A worker that dies between the effect and its record leaves no record, so
        the function must be safe to repeat in that case. Give each step of a job a name of its own.
        """
        _check_step(name, function)
        result = _result_of(name, function)
        self._use_step(name)
        try:
            found = {} if self.attempt == 1 or self._steps is not None else await self._records.recorded()
            if self._steps is None:  # Otherwise another step began at the same time, and may be recorded by now.
                self._steps = found
            if name in self._steps:
                return result.decode(self._steps[name])
            if inspect.iscoroutinefunction(function):
                value = await function(*args, **kwargs)
            else:
                value = await asyncio.to_thread(function, *args, **kwargs)
                if inspect.isawaitable(value):
                    value = await value
            await self._records.record(name, _recordable(name, result.encode(value)))
        except BaseException:
            self._used_steps.discard(name)  # The task may try it again.
            raise
        return value

    def step_sync(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As `step`, in a task that is no coroutine."""
        _check_step(name, function)
        result = _result_of(name, function)
        self._use_step(name)
        try:
            if self._steps is None:
                self._steps = {} if self.attempt == 1 else self._records.recorded_sync()
            if name in self._steps:
                known: T = result.decode(self._steps[name])
                return known
            value = function(*args, **kwargs)
            self._records.record_sync(name, _recordable(name, result.encode(value)))
        except BaseException:
            self._used_steps.discard(name)  # The task may try it again.
            raise
        return value

    def once(self, connection: object, name: str = "") -> Once:
        """Do an effect once for this job: `async with ctx.once(conn) as first:`, or `with` in sync code.

        `first` says whether the effect is still to be done. A row in the table `penstock_inbox` records it, in the
        transaction that is open on the connection, so that both are committed or neither is. Several effects of one job
        have names. Raises `NoTransaction` if the connection commits each statement by itself, and `AttemptStale` if a
        later attempt of the job has done an effect.
        """
        from penstock.client.transactions.inbox import Once  # noqa: PLC0415 - only who has such a table loads it

        return Once(connection, self.id, self.attempt, name)

    def _use_step(self, name: str) -> None:
        if name in self._used_steps:
            raise StepInvalid(f"This attempt has a step {name!r} already. Give each step of a job a name of its own.")
        self._used_steps.add(name)


def current() -> Context:
    """Return the context of the job that runs now; raises `NoCurrentJob` elsewhere."""
    try:
        return _current.get().context
    except LookupError:
        raise NoCurrentJob(
            "No job runs here: current() works inside a task that a worker runs, not in a direct call of its function."
        ) from None


def enter(running: Running) -> None:
    """Make `current()` return the context of this in all that runs in the present `contextvars` context."""
    _current.set(running)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _check_kind(kind: object) -> None:
    if not isinstance(kind, str) or not 1 <= len(kind) <= KIND_LENGTH_MAX:
        raise EventInvalid(f"The kind of an event is a text of 1 to {KIND_LENGTH_MAX} characters, not {kind!r}.")
    if kind == STEP or kind.startswith("job."):
        raise EventInvalid(f"Events of the kind {kind!r} are the service's own. Choose another name.")


def _check_step(name: object, function: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= STEP_NAME_LENGTH_MAX or not name.isprintable():
        raise StepInvalid(f"The name of a step is 1 to {STEP_NAME_LENGTH_MAX} printable characters, not {name!r}.")
    if not callable(function):
        raise StepInvalid(f"Step {name!r} calls a function, not {function!r}. Its arguments follow it.")


def _recordable(name: str, written: bytes) -> bytes:
    """Return the result of a step; raises `ResultTooLarge`, which is permanent: another attempt would run it again."""
    if len(written) > STEP_BYTES_MAX:
        raise ResultTooLarge(
            f"The result of step {name!r} has {len(written):,} bytes, and {STEP_BYTES_MAX:,} at most can be recorded. "
            "Store it elsewhere and return where it is."
        )
    return written


def _result_of(name: str, function: Callable[..., Any]) -> Result:
    """Read and write the result of a step by the function's annotation, if it has one."""
    unwrapped = getattr(function, "function", function)
    try:
        return Result.of(name, unwrapped)
    except TypeError:  # Not a plain function, or one whose annotation JSON cannot hold: its result has to be plain.
        return Result(name, Any)
