"""How a test runs jobs through time: what is due, then on to the next instant, on the test's own engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from penstock.client.errors import Closed, TaskInvalid
from penstock.client.worker.draining import Drain, Tally, shown
from penstock.client.worker.troubles import TroubleError, is_own

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from penstock.client.app import Penstock
    from penstock.client.embedded.manual import ManualEngine
    from penstock.client.tasks.enqueued import AnyTask

FAILURES_SHOWN_MAX = 10
STEP_MS_FIRST = 100
"""Where jobs wait for something else than an instant, time moves in steps that double from this one."""


class Ran(NamedTuple):
    """How many attempts ended in which way."""

    done: int = 0
    retrying: int = 0
    """They failed, and another attempt will follow."""
    dead: int = 0
    """They failed, and no other will follow."""
    snoozed: int = 0
    cancelled: int = 0
    """Cancelled while they ran, or discarded by their task."""
    lost: int = 0
    """Their lease ended, because the clock was moved while they ran."""

    @property
    def total(self) -> int:
        """How many attempts ended."""
        return sum(self)


class Pace(NamedTuple):
    """How many jobs run at once, and how many in all."""

    concurrency: int
    max_jobs: int


class Journey:
    """Runs jobs of an app on the engine of a test."""

    def __init__(self, app: Penstock, engine: ManualEngine) -> None:
        self._app = app
        self._engine = engine

    async def run_due(self, pace: Pace) -> Tally:
        """Run what is due now."""
        tally = Tally()
        await self._run_due(self._drain(tally, pace), tally)
        return tally

    async def travel(self, limit_ms: int, pace: Pace, *, until_idle: bool) -> Tally:
        """Run what is due, move the clock to when the next thing is, and so on for `limit_ms`, or until no job waits.

        Schedules fire on the way. They are not what keeps a test from being idle.
        """
        tally = Tally()
        drain = self._drain(tally, pace)
        left_ms, step_ms = limit_ms, STEP_MS_FIRST
        while True:
            ran = tally.started
            await self._run_due(drain, tally)
            due = await asyncio.wrap_future(self._engine.catch_up())
            job_in_ms, schedule_in_ms = due
            step_ms = STEP_MS_FIRST if tally.started > ran else step_ms * 2
            if await self._any_queued():
                # It is due and not offered: it waits for a rate, a limit or a paused queue, and nobody knows how long.
                job_in_ms = step_ms if job_in_ms is None else min(job_in_ms, step_ms)
            if not left_ms or (until_idle and job_in_ms is None):
                return tally
            move_ms = min(in_ms for in_ms in (left_ms, job_in_ms, schedule_in_ms) if in_ms is not None)
            await self.advance(move_ms)
            left_ms -= move_ms

    async def advance(self, ms: int) -> None:
        """Move the clock."""
        self.refuse_if_ended()
        await asyncio.wrap_future(self._engine.advance(ms))

    def advance_sync(self, ms: int) -> None:
        """Move the clock from a thread without an event loop."""
        self.refuse_if_ended()
        self._engine.advance(ms).result()

    async def save_schedules(self, tasks: Sequence[AnyTask]) -> None:
        """Save the schedules of these tasks; of all if there are none."""
        self.refuse_if_ended()
        self._app.import_tasks()
        scheduled = {cron.task for cron in self._app.crons}
        for task in tasks:
            if task not in scheduled:
                raise TaskInvalid(f"{task!r} has no schedule. It has to be declared with @app.cron.")
        for cron in self._app.crons:
            if not tasks or cron.task in tasks:
                await cron.save(self._app.schedules)

    def refuse_if_ended(self) -> None:
        """Raise `Closed` if the test has ended: the app's calls go elsewhere then."""
        if self._engine.ended:
            raise Closed("The block of app.testing() has ended, and its engine with it.")

    def _drain(self, tally: Tally, pace: Pace) -> Drain:
        self.refuse_if_ended()
        return Drain(self._app, tally, self._engine, concurrency=pace.concurrency, max_jobs=pace.max_jobs)

    async def _run_due(self, drain: Drain, tally: Tally) -> None:
        while True:
            ran = tally.started
            await asyncio.wrap_future(self._engine.catch_up())
            await drain.run()
            if tally.started == ran:
                return

    async def _any_queued(self) -> bool:
        return bool((await self._app.jobs.list(states=["queued"], limit=1)).jobs)


def outcome(tally: Tally, *, raise_errors: bool) -> Ran:
    """Return the counts, or raise what the first attempt that failed raised."""
    __tracebackhide__ = True
    if raise_errors and tally.failed:
        _raise_first(tally)
    counts = tally.outcomes
    return Ran(
        done=counts["done"],
        retrying=counts["retrying"],
        dead=counts["dead"],
        snoozed=counts["snoozed"],
        cancelled=counts["cancelled"] + counts["discarded"],
        lost=counts["lost"],
    )


def _raise_first(tally: Tally) -> NoReturn:
    __tracebackhide__ = True
    first, *others = tally.failed
    error = first.error
    error.add_note(f"Raised by task {first.task}, job {first.job}, attempt {first.attempt}.")
    if isinstance(error, TroubleError) and error.trouble.details:
        error.add_note(f"In its process:\n{error.trouble.details}")
    if others:
        error.add_note("\n  ".join(["These attempts failed, too:", *shown(others, FAILURES_SHOWN_MAX)]))
    raise error.with_traceback(_own_part(error.__traceback__))


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the worker's own frames, above those of the user's code; all are kept if there are no such."""
    found = trace
    while found is not None and not is_own(found.tb_frame.f_code.co_filename):
        found = found.tb_next
    return found or trace
