"""Jobs that a test finds enqueued, and how they are compared with what it expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.errors import ArgumentsInvalid
from penstock.client.sync.caller import Caller
from penstock.client.sync.face import SyncFace
from penstock.client.tasks.batch import BatchTask
from penstock.client.tasks.flows import GATHERED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.client.app import Penstock
    from penstock.client.embedded.manual import ManualEngine
    from penstock.client.requests import JobFilter
    from penstock.client.tasks.task import Task
    from penstock.wire.jobs.answers import JobView, State

    AnyTask = Task[..., Any, Any] | BatchTask[Any, Any]

UNFINISHED: tuple[State, ...] = ("scheduled", "queued", "offered", "running", "retrying")
SHOWN_MAX = 20
TIMEOUT_S = 30.0


class EnqueuedJob:
    """A job that has not ended."""

    def __init__(self, view: JobView, arguments: dict[str, Any], now_ms: int) -> None:
        self.view = view
        """All that is known of it."""
        self.id = view.id
        self.task = view.task
        self.queue = view.queue
        self.state = view.state
        self.arguments = arguments
        """What the task will be called with, by name; defaults are filled in."""
        waits = view.due_at_ms is not None and view.state in {"scheduled", "retrying"}
        self.due_in: float = max((view.due_at_ms or 0) - now_ms, 0) / 1_000 if waits else 0.0
        """In how many seconds of the test's clock it is due; 0 if it is."""

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        due = f" in {self.due_in:g} s" if self.due_in else ""
        return f"{self.task}({given}) is {self.state} in queue {self.queue}{due}"

    def matches(self, expected: Mapping[str, object]) -> bool:
        """Return whether each expected argument is equal to the job's."""
        return all(name in self.arguments and self.arguments[name] == value for name, value in expected.items())


class Enqueued:
    """What a test can ask about the jobs that wait. The engine is in this process, so nothing has to be awaited."""

    def __init__(self, app: Penstock, engine: ManualEngine) -> None:
        self._app = app
        self._engine = engine
        self._face = SyncFace(Caller(engine.open_sync, TIMEOUT_S))

    def enqueued(self, task: AnyTask | None = None) -> list[EnqueuedJob]:
        """Return the jobs that have not ended, of one task or of all, the oldest first."""
        only: JobFilter = {} if task is None else {"task": plain(task).name}
        found: list[JobView] = []
        cursor: str | None = None
        while True:
            page = self._face.jobs.list(states=UNFINISHED, cursor=cursor, **only)
            found += [self._face.jobs.get(job.id) for job in page.jobs]
            cursor = page.cursor
            if cursor is None:
                now_ms = self._engine.now_ms()
                return [EnqueuedJob(view, _arguments(self._app, view), now_ms) for view in reversed(found)]

    def assert_enqueued(self, task: AnyTask, /, *args: object, **kwargs: object) -> EnqueuedJob:
        """Return the first job of this task that has these arguments and has not ended; fail if there is none.

        Arguments that are left out may be anything.
        """
        __tracebackhide__ = True
        expected = _expected(task, args, kwargs)
        for job in self.enqueued(task):
            if job.matches(expected):
                return job
        raise AssertionError(f"{_called(task, expected)} is not enqueued. {described(self.enqueued())}")

    def assert_not_enqueued(self, task: AnyTask, /, *args: object, **kwargs: object) -> None:
        """Fail if there is a job of this task that has these arguments and has not ended."""
        __tracebackhide__ = True
        expected = _expected(task, args, kwargs)
        if any(job.matches(expected) for job in self.enqueued(task)):
            raise AssertionError(f"{_called(task, expected)} is enqueued. {described(self.enqueued())}")


def plain(task: AnyTask) -> Task[..., Any, Any]:
    """Return a task as the one that is enqueued."""
    return task.task if isinstance(task, BatchTask) else task


def _expected(task: AnyTask, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
    """Return some arguments of a task by name; raises `TypeError` if the task cannot be called with them."""
    try:
        return plain(task).signature.bind_some(args, kwargs)
    except TypeError as error:
        raise TypeError(f"Task {plain(task).name} has no such parameters: {error}.") from None


def _called(task: AnyTask, expected: Mapping[str, object]) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in expected.items())
    return f"{plain(task).name}({given})"


def described(jobs: Sequence[EnqueuedJob]) -> str:
    """List jobs for the message of an assertion."""
    if not jobs:
        return "Nothing is enqueued."
    lines = [f"  {job!r}" for job in jobs[:SHOWN_MAX]]
    if len(jobs) > SHOWN_MAX:
        lines.append(f"  and {len(jobs) - SHOWN_MAX:,} more")
    return "\n".join(["These jobs are enqueued:", *lines])


def _arguments(app: Penstock, view: JobView) -> dict[str, Any]:
    """Read a payload as the task would; as plain JSON where the task is not known or does not take it."""
    task = app.tasks.get(view.task)
    try:
        if task is not None:
            return plain(task).signature.named(view.payload)
    except ArgumentsInvalid:
        # A continuation, whose results are not known before it runs, or a payload that will fail.
        pass
    given = msgspec.json.decode(view.payload)
    if not isinstance(given, dict):
        return {"payload": given}
    given.pop(GATHERED, None)
    return given
