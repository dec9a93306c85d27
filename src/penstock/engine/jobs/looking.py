"""Looking at jobs: one, many, their events, their results; and what a user may do to one: cancel and retry it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import TERMINAL, Job, JobEvent, JobState
from penstock.domain.job_request import check_range
from penstock.engine.jobs.changes import LOOK_MS
from penstock.engine.jobs.staging import Staging
from penstock.store.job_port import ALL_EVENTS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from penstock.domain.clock import Clock
    from penstock.domain.job import EventFilter
    from penstock.domain.job_limits import JobLimits
    from penstock.domain.operation import JobFilter
    from penstock.engine.jobs.changes import Changes
    from penstock.store.job_port import Events, JobStore

EVENTS_PAGE = 100


class JobPage(msgspec.Struct, frozen=True):
    """Jobs, the newest first, and the position below which those follow that are older; None is the end."""

    jobs: list[Job]
    before: int | None


class News(msgspec.Struct, frozen=True):
    """Events of a job; without any, a sign of life. `ended` is the state that it ended in, after the last of all."""

    events: list[JobEvent]
    ended: JobState | None = None


class Looking:
    """The use cases of people who look after jobs. `closing` tells whether the service is about to stop."""

    def __init__(
        self,
        store: JobStore,
        changes: Changes,
        clock: Clock,
        limits: JobLimits,
        staging: Staging | None = None,
    ) -> None:
        self._store = store
        self._staging = staging or Staging(store)
        self._changes = changes
        self._clock = clock
        self._limits = limits
        self._closing = False

    async def job(self, job_id: str) -> Job:
        """Return a job with its attempts, or raise `JobDoesNotExist`."""
        return await self._staging.found(job_id, lambda: self._store.job(job_id))

    async def jobs(self, wanted: JobFilter, *, before: int | None = None, limit: int = 100) -> JobPage:
        """Return a page of jobs, the newest first. Another one follows only if it has a job."""
        check_range("limit", limit, 1, self._limits.list_page_max)
        jobs = await self._store.jobs(wanted, before=before, limit=limit)
        last = jobs[-1].position if jobs else None
        more = last is not None and bool(await self._store.jobs(wanted, before=last, limit=1))
        return JobPage(jobs, last if more else None)

    async def cancel(self, job_id: str, *, call: str | None = None) -> Job:
        """Cancel a job; one that runs is asked to stop. The same `call` again changes nothing."""
        return await self._staging.found(job_id, lambda: self._store.cancel(job_id, call=call))

    async def retry(self, job_id: str, *, call: str | None = None) -> Job:
        """Queue a job again that is dead, cancelled or waiting. The same `call` again changes nothing."""
        return await self._staging.found(job_id, lambda: self._store.retry(job_id, call=call))

    async def result(self, job_id: str, *, wait_ms: int = 0) -> Job:
        """Return a job once it is finished, or as it is after `wait_ms`."""
        check_range("wait", wait_ms, 0, self._limits.result_wait_ms_max)
        job = await self.job(job_id)
        if job.state in TERMINAL or wait_ms == 0:
            return job
        deadline_ms = self._clock.now_ms() + wait_ms
        with self._changes.watch(job_id) as bell:
            while True:
                job = await self._store.job(job_id)
                now_ms = self._clock.now_ms()
                if job.state in TERMINAL or now_ms >= deadline_ms or self._closing:
                    return job
                await bell.wait(self._clock, min(deadline_ms, now_ms + LOOK_MS))

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = EVENTS_PAGE, wanted: EventFilter = ALL_EVENTS
    ) -> Events:
        """Return a page of a job's events from the first beyond `after`, or raise `JobDoesNotExist`.

        One that is not complete may be short, or empty: the next one begins after the page's `after`.
        """
        check_range("limit", limit, 1, self._limits.list_page_max)
        return await self._staging.found(
            job_id, lambda: self._store.events(job_id, after=after, limit=limit, wanted=wanted)
        )

    async def follow(self, job_id: str, *, after: int = 0, wanted: EventFilter = ALL_EVENTS) -> AsyncGenerator[News]:
        """Yield a job's events as they come: those that there are, then those that follow, until it is finished.

        Each comes from the store, in the order of its number, so between replay and live there is no seam at which one
        could be missed or come twice. Ends early when the service stops or after `limits.stream_ms_max`; the number of
        the last event says where to go on.
        """
        ends_ms = self._clock.now_ms() + self._limits.stream_ms_max
        beat_ms = self._clock.now_ms() + self._limits.keep_alive_ms
        with self._changes.watch(job_id) as bell:
            while True:
                page = await self.events(job_id, after=after, wanted=wanted)
                now_ms = self._clock.now_ms()
                ended = page.state if page.complete and page.state in TERMINAL else None
                if page.events or ended is not None or now_ms >= beat_ms:
                    beat_ms = now_ms + self._limits.keep_alive_ms
                    yield News(page.events, ended)
                if ended is not None or self._closing or now_ms >= ends_ms:
                    return
                after = page.after
                if page.complete:
                    await bell.wait(self._clock, min(now_ms + LOOK_MS, beat_ms))

    def end_waits(self) -> None:
        """Let all who wait here look once more and go."""
        self._closing = True
        self._changes.tell_all()
