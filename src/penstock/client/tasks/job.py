"""`Job`: a handle of a job that was enqueued."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.client.durations import Duration, seconds
from penstock.client.errors import JobCancelled, JobDead, JobUnfinished
from penstock.client.loops import refuse_on_loop
from penstock.client.verbs.jobs import FINISHED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import msgspec

    from penstock.client.app import Penstock
    from penstock.wire.jobs.answers import EventView, JobView, ResultView

RESULT_WAIT_S = 3_600.0
"""How long `result` waits where no timeout is given: as long as an attempt may run unless it says otherwise."""

T_co = TypeVar("T_co", covariant=True)


class Job(Generic[T_co]):
    """A job by its id. It holds nothing of the job's: each method asks the server.

    Methods that end in `_sync` block, for code without an event loop.
    """

    __slots__ = ("_app", "_read", "duplicate", "id", "replaced", "replayed")

    def __init__(
        self,
        app: Penstock,
        job_id: str,
        read: Callable[[msgspec.Raw | bytes], Any],
        *,
        replayed: bool = False,
        duplicate: bool = False,
        replaced: str | None = None,
    ) -> None:
        self._app = app
        self._read = read
        self.id = job_id
        self.replayed = replayed
        """The job was there already, by its id or its idempotency key."""
        self.duplicate = duplicate
        """An unfinished job had the unique key already: this one."""
        self.replaced = replaced
        """The id of the waiting job that this one replaced."""

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    async def result(self, timeout: Duration | None = None) -> T_co:  # noqa: ASYNC109 - it covers repeats of lost answers
        """Wait for the job to end and return its result.

        Raises `JobDead` with the failure, `JobCancelled`, `JobNotFound`, or `JobUnfinished`, a `TimeoutError`, if it
        has not ended after `timeout`, an hour by default.
        """
        wait_s = RESULT_WAIT_S if timeout is None else seconds(timeout, "timeout")
        until = time.monotonic() + wait_s
        while True:
            found = await self._app.jobs.result(self.id, wait=max(until - time.monotonic(), 0.0))
            if found.state in FINISHED or time.monotonic() >= until:
                return self._outcome(found, wait_s)

    def result_sync(self, timeout: Duration | None = None) -> T_co:
        """Block until the job has ended and return its result; raises as `result`."""
        refuse_on_loop("result_sync", "result")
        wait_s = RESULT_WAIT_S if timeout is None else seconds(timeout, "timeout")
        return self._outcome(self._app.sync.jobs.result(self.id, wait=wait_s), wait_s)

    async def events(self, after: int = 0) -> AsyncIterator[EventView]:
        """Yield the job's events beyond number `after` as they come, each once, until the job has ended."""
        async for event in self._app.jobs.follow(self.id, after=after):
            yield event

    def events_sync(self, after: int = 0) -> Iterator[EventView]:
        """Yield the job's events, as `events` does."""
        refuse_on_loop("events_sync", "events")
        return self._app.sync.jobs.follow(self.id, after=after)

    async def cancel(self) -> JobView:
        """Cancel the job, or ask the worker that runs it to stop; return the job as it is then."""
        return await self._app.jobs.cancel(self.id)

    def cancel_sync(self) -> JobView:
        """Cancel the job, as `cancel` does."""
        refuse_on_loop("cancel_sync", "cancel")
        return self._app.sync.jobs.cancel(self.id)

    async def retry(self) -> JobView:
        """Queue the job again, now, if it is dead or cancelled or waits; return the job as it is then."""
        return await self._app.jobs.retry(self.id)

    def retry_sync(self) -> JobView:
        """Queue the job again, as `retry` does."""
        refuse_on_loop("retry_sync", "retry")
        return self._app.sync.jobs.retry(self.id)

    async def view(self) -> JobView:
        """Return all that is known of the job; raises `JobNotFound`."""
        return await self._app.jobs.get(self.id)

    def view_sync(self) -> JobView:
        """Return all that is known of the job; raises `JobNotFound`."""
        refuse_on_loop("view_sync", "view")
        return self._app.sync.jobs.get(self.id)

    def _outcome(self, found: ResultView, waited_s: float) -> T_co:
        if found.state == "succeeded":
            value: T_co = self._read(b"null" if not found.result else found.result)
            return value
        failure = found.failure
        why = "" if failure is None else f" {failure.kind}: {failure.message}"
        if found.state == "dead":
            raise JobDead(self.id, f"Job {self.id} is dead.{why}", failure)
        if found.state == "cancelled":
            raise JobCancelled(self.id, f"Job {self.id} was cancelled.{why}", failure)
        hint = " Does a worker run for its queue?" if found.state == "queued" else ""
        raise JobUnfinished(f"Job {self.id} is {found.state} and has not ended within {waited_s:g} seconds.{hint}")
