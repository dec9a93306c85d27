"""`app.testing()`: tests of tasks on the real engine, in memory, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from penstock.client.durations import Duration, milliseconds
from penstock.client.embedded.manual import ManualEngine
from penstock.client.errors import AlreadyTesting
from penstock.client.loops import refuse_on_loop
from penstock.client.tasks.enqueued import Enqueued
from penstock.client.tasks.journeys import Journey, Pace, Ran, outcome

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from penstock.client.app import Penstock
    from penstock.client.senders import Senders
    from penstock.client.tasks.enqueued import AnyTask

JOBS_MAX = 10_000
IDLE_LIMIT = "30d"

T = TypeVar("T")


class AppTesting:
    """What `app.testing()` returns: enter it with `with`, or with `async with` where an event loop runs."""

    def __init__(self, app: Penstock) -> None:
        self._app = app
        self._engine: ManualEngine | None = None
        self._before: Senders
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> TaskTester:
        refuse_on_loop("with app.testing()", "async with app.testing()")
        engine = self._begin()
        self._runner = asyncio.Runner()
        return TaskTester(self._app, engine, self._runner)

    def __exit__(self, *_: object) -> None:
        # The app is given back first, whatever becomes of the rest.
        self._restore()
        assert self._runner is not None
        self._runner.close()
        self._end()

    async def __aenter__(self) -> AsyncTaskTester:
        return self.enter_async()

    async def __aexit__(self, *_: object) -> None:
        self.exit_async()

    def enter_async(self) -> AsyncTaskTester:
        """As `async with` does, for a fixture that is not async. It takes some milliseconds, and needs no loop."""
        return AsyncTaskTester(self._app, self._begin())

    def exit_async(self) -> None:
        """Undo `enter_async`."""
        self._restore()
        self._end()

    def _begin(self) -> ManualEngine:
        with _entering:
            if self._app in _tested:
                raise AlreadyTesting(
                    f"{self._app!r} is being tested already. One block of app.testing() at a time can have its calls: "
                    "use the one that is open, or end it first."
                )
            engine = ManualEngine()
            engine.start()
            self._before = self._app.use_senders(engine)
            _tested.append(self._app)
        self._engine = engine
        return engine

    def _restore(self) -> None:
        with _entering:
            self._app.use_senders(self._before)
            _tested.remove(self._app)

    def _end(self) -> None:
        assert self._engine is not None
        self._engine.end()


_entering = threading.Lock()
_tested: list[Penstock] = []
"""The apps that are being tested now."""


class _Clock:
    """The time of a test, which stands still until it is moved."""

    def __init__(self, engine: ManualEngine) -> None:
        self._engine = engine

    def now(self) -> datetime:
        """Return the present instant."""
        return datetime.fromtimestamp(self._engine.now_ms() / 1_000, UTC)

    def now_ms(self) -> int:
        """Return the present instant, in milliseconds since the epoch."""
        return self._engine.now_ms()


class AsyncTaskClock(_Clock):
    """The clock of an `AsyncTaskTester`."""

    def __init__(self, engine: ManualEngine, journey: Journey) -> None:
        super().__init__(engine)
        self._journey = journey

    async def advance(
        self,
        by: timedelta | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        ms: float = 0,
    ) -> None:
        """Move time forward. What comes due on the way is enqueued at its instant, but not run.

        Raises `ValueError` for a step back.
        """
        await self._journey.advance(_step_ms(by, timedelta(days, seconds, 0, ms, minutes, hours)))


class TaskClock(_Clock):
    """The clock of a `TaskTester`."""

    def __init__(self, engine: ManualEngine, tester: TaskTester) -> None:
        super().__init__(engine)
        self._tester = tester

    def advance(
        self,
        by: timedelta | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        ms: float = 0,
    ) -> None:
        """Move time forward. What comes due on the way is enqueued at its instant, but not run.

        Raises `ValueError` for a step back.
        """
        self._tester.advance(_step_ms(by, timedelta(days, seconds, 0, ms, minutes, hours)))


class AsyncTaskTester(Enqueued):
    """An app in a test with an event loop, where its async tasks run, too."""

    def __init__(self, app: Penstock, engine: ManualEngine) -> None:
        super().__init__(app, engine)
        self._journey = Journey(app, engine)
        self.clock = AsyncTaskClock(engine, self._journey)
        """The time of the test."""

    async def run_all(self, *, raise_errors: bool = True, concurrency: int = 1, max_jobs: int = JOBS_MAX) -> Ran:
        """Run all jobs that are due now, and those that they enqueue, as a worker does, until none is due.

        `concurrency` jobs run at once. If attempts fail, the exception of the first is raised in the end, with notes
        about the others; with `raise_errors=False` the retry policies alone decide what becomes of them. After
        `max_jobs` jobs it raises `RunsForever`.
        """
        __tracebackhide__ = True
        return outcome(await self._journey.run_due(Pace(concurrency, max_jobs)), raise_errors=raise_errors)

    async def run_until_idle(
        self,
        *,
        limit: Duration = IDLE_LIMIT,
        raise_errors: bool = False,
        concurrency: int = 1,
        max_jobs: int = JOBS_MAX,
    ) -> Ran:
        """Run jobs and move the clock to when the next one is due, until no job waits or `limit` has passed.

        Attempts that fail are tried again by their policies; `raise_errors=True` raises the first exception in the end.
        """
        __tracebackhide__ = True
        pace, limit_ms = Pace(concurrency, max_jobs), milliseconds(limit, "limit")
        return outcome(await self._journey.travel(limit_ms, pace, until_idle=True), raise_errors=raise_errors)

    async def run_for(
        self, duration: Duration, *, raise_errors: bool = False, concurrency: int = 1, max_jobs: int = JOBS_MAX
    ) -> Ran:
        """Move the clock by `duration`, and run each job when it is due, also those that schedules enqueue."""
        __tracebackhide__ = True
        pace, limit_ms = Pace(concurrency, max_jobs), milliseconds(duration, "duration")
        return outcome(await self._journey.travel(limit_ms, pace, until_idle=False), raise_errors=raise_errors)

    async def save_schedules(self, *tasks: AnyTask) -> None:
        """Save the schedules of `@app.cron`, all or those of these tasks, as a worker does when it starts."""
        await self._journey.save_schedules(tasks)


class TaskTester(Enqueued):
    """An app in a test without an event loop. Async tasks run on a loop of the test's own, on this thread."""

    def __init__(self, app: Penstock, engine: ManualEngine, runner: asyncio.Runner) -> None:
        super().__init__(app, engine)
        self._journey = Journey(app, engine)
        self._runner = runner
        self.clock = TaskClock(engine, self)
        """The time of the test."""

    def run_all(self, *, raise_errors: bool = True, concurrency: int = 1, max_jobs: int = JOBS_MAX) -> Ran:
        """Run all jobs that are due now, and those that they enqueue, as `AsyncTaskTester.run_all` does."""
        __tracebackhide__ = True
        tally = self._wait("run_all", self._journey.run_due(Pace(concurrency, max_jobs)))
        return outcome(tally, raise_errors=raise_errors)

    def run_until_idle(
        self,
        *,
        limit: Duration = IDLE_LIMIT,
        raise_errors: bool = False,
        concurrency: int = 1,
        max_jobs: int = JOBS_MAX,
    ) -> Ran:
        """Run jobs and move the clock until no job waits, as `AsyncTaskTester.run_until_idle` does."""
        __tracebackhide__ = True
        pace, limit_ms = Pace(concurrency, max_jobs), milliseconds(limit, "limit")
        tally = self._wait("run_until_idle", self._journey.travel(limit_ms, pace, until_idle=True))
        return outcome(tally, raise_errors=raise_errors)

    def run_for(
        self, duration: Duration, *, raise_errors: bool = False, concurrency: int = 1, max_jobs: int = JOBS_MAX
    ) -> Ran:
        """Move the clock by `duration`, and run each job when it is due, as `AsyncTaskTester.run_for` does."""
        __tracebackhide__ = True
        pace, limit_ms = Pace(concurrency, max_jobs), milliseconds(duration, "duration")
        tally = self._wait("run_for", self._journey.travel(limit_ms, pace, until_idle=False))
        return outcome(tally, raise_errors=raise_errors)

    def save_schedules(self, *tasks: AnyTask) -> None:
        """Save the schedules of `@app.cron`, all or those of these tasks, as a worker does when it starts."""
        self._wait("save_schedules", self._journey.save_schedules(tasks))

    def advance(self, ms: int) -> None:
        """Move the clock, as `clock.advance` does. A task in a thread may do this, too."""
        _refuse_on_loop("clock.advance")
        self._journey.advance_sync(ms)

    def _wait(self, method: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            _refuse_on_loop(method)
            self._journey.refuse_if_ended()
            return self._runner.run(work)
        finally:
            work.close()


def _refuse_on_loop(method: str) -> None:
    refuse_on_loop(f"t.{method}", f"t.{method} of `async with app.testing() as t`")


def _step_ms(by: timedelta | None, more: timedelta) -> int:
    step = more if by is None else by + more
    if step < timedelta():
        raise ValueError(f"Time cannot be moved backwards, by {step}.")
    return step // timedelta(milliseconds=1)
