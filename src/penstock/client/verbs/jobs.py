"""Jobs: enqueue, look, wait, cancel, retry, follow."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import UNSET

from penstock.client.calls import FIRST_TRY, WAIT_S, Call, waiting
from penstock.client.errors import ClientError, error_of
from penstock.client.reading import ServerSentEvents, body, decoder, new_id, query, reader, segment
from penstock.client.requests import JobFilter, JobOptions, NewJob
from penstock.client.slices import slices, written
from penstock.client.transport.http1 import Outgoing
from penstock.wire.jobs.answers import (
    Accepted,
    BatchAnswer,
    BatchEntry,
    EventsView,
    EventView,
    JobPage,
    JobView,
    Problem,
    ResultView,
    State,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from penstock.client.verbs.caller import Caller

FINISHED = frozenset({"succeeded", "dead", "cancelled"})

_read_accepted = reader(Accepted)
_read_batch = reader(BatchAnswer)
_read_job = reader(JobView)
_read_page = reader(JobPage)
_read_result = reader(ResultView)
_read_events = reader(EventsView)
_read_event = decoder(EventView)
_read_problem = decoder(Problem)


class Jobs:
    """Jobs. Each method takes a `timeout` in seconds, within which lost answers are asked for again."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def enqueue(
        self,
        queue: str,
        task: str,
        payload: Any = None,  # noqa: ANN401 - any JSON
        *,
        timeout: float | None = None,
        retry_too_many: bool = False,
        **options: Unpack[JobOptions],
    ) -> Accepted:
        """Enqueue a job. Its id is made here unless it is given, so that a lost answer never enqueues it twice.

        A queue that is full, or a rate that is exceeded, raises `TooMany`; with `retry_too_many` the job is offered
        to the queue again until the timeout.
        """
        job = NewJob(queue=queue, task=task, payload=payload, **options)
        return await self.enqueue_new(job, timeout=timeout, retry_too_many=retry_too_many)

    async def enqueue_new(self, job: NewJob, *, timeout: float | None = None, retry_too_many: bool = False) -> Accepted:
        """Enqueue a job, as `enqueue` does."""
        call = Call(
            "POST",
            "/v1/jobs",
            _read_accepted,
            written(job),
            retry_too_many=retry_too_many,
            first_headers=FIRST_TRY if job.id is UNSET else "",
        )
        return await self._caller.perform(call, timeout)

    async def enqueue_many(self, jobs: Iterable[NewJob], *, timeout: float | None = None) -> list[BatchEntry]:
        """Enqueue any number of jobs, 500 in a request, and return what became of each, in order.

        If a request fails, the error has as `results` what became of the jobs before it.
        """
        results: list[BatchEntry] = []
        for entries in slices(jobs):
            call = Call("POST", "/v1/jobs/batch", _read_batch, b'{"jobs":[%b]}' % b",".join(entries))
            try:
                results += (await self._caller.perform(call, timeout)).results
            except ClientError as error:
                error.results = results
                raise
        return results

    async def get(self, job_id: str, *, timeout: float | None = None) -> JobView:
        """Return a job with its attempts; raises `JobNotFound`."""
        return await self._caller.perform(Call("GET", f"/v1/jobs/{segment(job_id)}", _read_job), timeout)

    async def list(
        self,
        *,
        states: Sequence[State] | None = None,
        queue: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        timeout: float | None = None,
        **only: Unpack[JobFilter],
    ) -> JobPage:
        """Return a page of jobs, the newest first; its `cursor` asks for the next."""
        asked = query({"state": states, "queue": queue, "limit": limit, "cursor": cursor, **only})
        return await self._caller.perform(Call("GET", f"/v1/jobs{asked}", _read_page), timeout)

    async def dead(
        self,
        *,
        queue: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        timeout: float | None = None,
        **only: Unpack[JobFilter],
    ) -> JobPage:
        """Return a page of the dead jobs of one queue, or of all queues."""
        path = "/dlq" if queue is None else f"/v1/queues/{segment(queue)}/dead"
        asked = query({"limit": limit, "cursor": cursor, **only})
        return await self._caller.perform(Call("GET", f"{path}{asked}", _read_page), timeout)

    async def result(self, job_id: str, *, wait: float = 0.0, timeout: float | None = None) -> ResultView:
        """Return what a job came to, after waiting for it to finish for up to `wait` seconds."""
        path = f"/v1/jobs/{segment(job_id)}/result"
        until = time.monotonic() + wait
        while True:
            wait_s = min(max(until - time.monotonic(), 0.0), WAIT_S)
            call = Call("GET", waiting(path, wait_s).target, _read_result)
            found = await self._caller.perform(
                call.waiting(wait_s, lambda left_s: waiting(path, left_s)) if wait_s else call, timeout
            )
            if found.state in FINISHED or time.monotonic() >= until:
                return found

    async def cancel(self, job_id: str, *, request_id: str | None = None, timeout: float | None = None) -> JobView:
        """Cancel a job, or ask the worker that runs it to stop; return the job as it is then."""
        return await self._change(job_id, "cancel", request_id, timeout)

    async def retry(self, job_id: str, *, request_id: str | None = None, timeout: float | None = None) -> JobView:
        """Queue a dead, cancelled or waiting job again, now; return the job as it is then."""
        return await self._change(job_id, "retry", request_id, timeout)

    async def _change(self, job_id: str, verb: str, request_id: str | None, timeout: float | None) -> JobView:
        given = body({"request_id": request_id or new_id()})
        call = Call("POST", f"/v1/jobs/{segment(job_id)}/{verb}", _read_job, given)
        return await self._caller.perform(call, timeout)

    async def events(
        self,
        job_id: str,
        *,
        after: int | None = None,
        limit: int | None = None,
        kinds: Sequence[str] | None = None,
        from_ms: int | None = None,
        before_ms: int | None = None,
        timeout: float | None = None,
    ) -> EventsView:
        """Return a page of the events that a job has so far, those that follow number `after` first."""
        asked = query(
            {
                "follow": False,
                "after": after,
                "limit": limit,
                "kind": kinds,
                "from_ms": from_ms,
                "before_ms": before_ms,
            }
        )
        call = Call("GET", f"/v1/jobs/{segment(job_id)}/events{asked}", _read_events)
        return await self._caller.perform(call, timeout)

    async def follow(
        self,
        job_id: str,
        *,
        after: int = 0,
        kinds: Sequence[str] | None = None,
        from_ms: int | None = None,
        before_ms: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[EventView]:
        """Yield the events of a job as they come, each once, until the job is finished.

        A connection that breaks or falls silent is opened anew after the last event; `timeout` is for how long nothing
        at all may be heard.
        """
        path = f"/v1/jobs/{segment(job_id)}/events"
        given = {"kind": kinds, "from_ms": from_ms, "before_ms": before_ms}
        seen = after

        def request() -> Outgoing:
            asked = query({"after": seen or None, **given})
            return Outgoing("GET", f"{path}{asked}", headers="accept: text/event-stream\r\n")

        events = ServerSentEvents()
        async with aclosing(self._caller.follow(request, timeout)) as parts:
            async for part in parts:
                if part is None:
                    events = ServerSentEvents()
                    continue
                for event in events.feed(part):
                    if event.kind == "end":
                        return
                    if event.kind == "problem":
                        raise error_of(_read_problem(event.data))
                    found = _read_event(event.data)
                    seen = found.seq
                    yield found
