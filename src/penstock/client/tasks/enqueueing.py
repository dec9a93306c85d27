"""The part of `Penstock` that enqueues calls of tasks, one, many, or with another that follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import msgspec

from penstock.client.durations import Duration, milliseconds
from penstock.client.errors import Invalid, MethodNotAllowed, NotFound, ServerTooOld, TaskInvalid, error_of
from penstock.client.gathered_enqueues import GatheredEnqueues
from penstock.client.loops import refuse_on_loop
from penstock.client.reading import new_id
from penstock.client.slices import written
from penstock.client.tasks.flows import Flow, fan_in, prepare, refuse_tx, stored
from penstock.client.tasks.job import Job
from penstock.client.tasks.task import Call, Takes, TakesTwo
from penstock.client.verbs.face import AsyncFace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.client.errors import ClientError, JobEnded, ProblemError
    from penstock.client.requests import NewJob, OnError
    from penstock.client.sync.face import SyncFace
    from penstock.client.verbs.caller import Caller
    from penstock.wire.jobs.answers import Accepted, BatchEntry

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E")

_NOTHING: Any = object()


class Enqueueing(AsyncFace):
    """Enqueues calls of tasks."""

    if TYPE_CHECKING:

        @property
        def sync(self) -> SyncFace:
            """The verbs for code without an event loop."""

        @property
        def address(self) -> str:
            """Its URL as it may be shown."""

        def stages(self) -> bool:
            """Return whether calls with `tx` wait for a transaction."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self._gathered = GatheredEnqueues(caller)

    async def enqueue_many(self, calls: Iterable[Call[T]], *, tx: object = None) -> list[Job[T] | ClientError]:
        """Enqueue any number of calls, 500 in a request, and return a job or an error for each, in order.

        If a request fails as a whole, its error is raised, with `results` of those before it. With `tx`, a connection
        of yours, all of them are enqueued if and when its transaction commits; a job that is wrong is raised then, and
        you roll back.
        """
        given = checked(self, calls, "enqueue_many", tx)
        if tx is not None and self.stages():
            return [*await self.stage(given, tx)]
        return self._outcomes(given, await self.jobs.enqueue_many([call.new_job() for call in given]))

    def enqueue_many_sync(self, calls: Iterable[Call[T]], *, tx: object = None) -> list[Job[T] | ClientError]:
        """As `enqueue_many`, for code without an event loop."""
        refuse_on_loop("enqueue_many_sync", "enqueue_many")
        given = checked(self, calls, "enqueue_many_sync", tx)
        if tx is not None and self.stages():
            return [*self.stage_sync(given, tx)]
        return self._outcomes(given, self.sync.jobs.enqueue_many([call.new_job() for call in given]))

    def job(self, job_id: str) -> Job[Any]:
        """Return a handle of a job by its id. Nothing is looked up."""
        return Job(cast("Any", self), job_id, msgspec.json.decode)

    @overload
    async def fan_out(
        self,
        calls: Iterable[Call[T]],
        *,
        then: Takes[list[T], U],
        on_error: Literal["fail"] = "fail",
        expires: Duration = "1d",
    ) -> Flow[U]: ...
    @overload
    async def fan_out(
        self,
        calls: Iterable[Call[T]],
        *,
        entity: E,
        then: TakesTwo[E, list[T], U],
        on_error: Literal["fail"] = "fail",
        expires: Duration = "1d",
    ) -> Flow[U]: ...
    @overload
    async def fan_out(
        self,
        calls: Iterable[Call[T]],
        *,
        then: Takes[list[T | JobEnded], U],
        on_error: Literal["collect"],
        expires: Duration = "1d",
    ) -> Flow[U]: ...
    @overload
    async def fan_out(
        self,
        calls: Iterable[Call[T]],
        *,
        entity: E,
        then: TakesTwo[E, list[T | JobEnded], U],
        on_error: Literal["collect"],
        expires: Duration = "1d",
    ) -> Flow[U]: ...
    async def fan_out(
        self,
        calls: Iterable[Call[Any]],
        *,
        then: Any,
        entity: Any = _NOTHING,
        on_error: OnError = "fail",
        expires: Duration = "1d",
    ) -> Flow[Any]:
        """Enqueue calls, and `then` once they have ended, called with the list of their results in order.

        With an `entity`, that is the first argument and the results are the second. `on_error="fail"` runs `then` when
        all have succeeded, and waits while one is dead or cancelled, until `expires`; `"collect"` runs it when all have
        ended, with a `JobEnded` error in place of each result that is missing. `then` is enqueued exactly once, in the
        transaction in which the last call ends.
        """
        links = [fan_in(then, entity, given=entity is not _NOTHING)]
        jobs, options = _members(self, calls, on_error, expires)
        try:
            answer = await self.gathers.create(prepare(links), jobs, **options)
        except (NotFound, MethodNotAllowed) as error:
            raise _too_old("fan_out", self.address, error) from error
        return stored(cast("Any", self), links, answer)

    @overload
    def fan_out_sync(
        self,
        calls: Iterable[Call[T]],
        *,
        then: Takes[list[T], U],
        on_error: Literal["fail"] = "fail",
        expires: Duration = "1d",
    ) -> Flow[U]: ...
    @overload
    def fan_out_sync(
        self,
        calls: Iterable[Call[T]],
        *,
        entity: E,
        then: TakesTwo[E, list[T], U],
        on_error: Literal["fail"] = "fail",
        expires: Duration = "1d",
    ) -> Flow[U]: ...
    @overload
    def fan_out_sync(
        self,
        calls: Iterable[Call[T]],
        *,
        then: Takes[list[T | JobEnded], U],
        on_error: Literal["collect"],
        expires: Duration = "1d",
    ) -> Flow[U]: ...
    @overload
    def fan_out_sync(
        self,
        calls: Iterable[Call[T]],
        *,
        entity: E,
        then: TakesTwo[E, list[T | JobEnded], U],
        on_error: Literal["collect"],
        expires: Duration = "1d",
    ) -> Flow[U]: ...
    def fan_out_sync(
        self,
        calls: Iterable[Call[Any]],
        *,
        then: Any,
        entity: Any = _NOTHING,
        on_error: OnError = "fail",
        expires: Duration = "1d",
    ) -> Flow[Any]:
        """As `fan_out`, for code without an event loop."""
        refuse_on_loop("fan_out_sync", "fan_out")
        links = [fan_in(then, entity, given=entity is not _NOTHING)]
        jobs, options = _members(self, calls, on_error, expires)
        try:
            answer = self.sync.gathers.create(prepare(links), jobs, **options)
        except (NotFound, MethodNotAllowed) as error:
            raise _too_old("fan_out", self.address, error) from error
        return stored(cast("Any", self), links, answer)

    async def stage(self, calls: list[Call[T]], tx: object) -> list[Job[T]]:
        """Enqueue calls in the transaction of a connection."""
        from penstock.client.transactions.staging import stage  # noqa: PLC0415 - only who needs it loads it

        ids = await stage(tx, (call.new_job() for call in calls))
        return [call.staged(job_id) for call, job_id in zip(calls, ids, strict=True)]

    def stage_sync(self, calls: list[Call[T]], tx: object) -> list[Job[T]]:
        """As `stage`, for a connection that is not async."""
        from penstock.client.transactions.staging import stage_sync  # noqa: PLC0415 - likewise

        ids = stage_sync(tx, (call.new_job() for call in calls))
        return [call.staged(job_id) for call, job_id in zip(calls, ids, strict=True)]

    async def enqueue_job(self, job: NewJob) -> Accepted:
        """Enqueue a job that a call made. Those that come at the same time share requests."""
        try:
            if isinstance(job.idempotency_key, str) or isinstance(job.id, str):
                # What may be known already is answered for itself: its key may be busy, and is asked for again then.
                return await self.jobs.enqueue_new(job)
            job.id = new_id()
            return await self._gathered.enqueue(written(job))
        except Invalid as error:
            raise self._explained(error) from None

    def enqueue_job_sync(self, job: NewJob) -> Accepted:
        """Enqueue a job that a call made."""
        try:
            return self.sync.jobs.enqueue_new(job)
        except Invalid as error:
            raise self._explained(error) from None

    def _explained(self, error: ProblemError) -> ClientError:
        """Return the error, or what it means: a field that the server does not know is newer than the server."""
        _, unknown, field = str(error).partition("unknown field ")
        return _too_old(field.rstrip("."), self.address, error) if unknown else error

    def _outcomes(self, calls: list[Call[T]], entries: list[BatchEntry]) -> list[Job[T] | ClientError]:
        made: list[Job[T] | ClientError] = []
        for call, entry in zip(calls, entries, strict=True):
            if entry.job is not None:
                made.append(call.handle(entry.job))
            else:
                assert entry.problem is not None, "an entry is a job or a problem"
                made.append(self._explained(error_of(entry.problem)))
        return made


def checked(app: Enqueueing, calls: Iterable[Call[T]], method: str, tx: object = None) -> list[Call[T]]:
    """Return calls as a list; raises `TaskInvalid` unless they are of this app's tasks and can share this `tx`."""
    try:
        each = iter(calls)
    except TypeError:
        raise TaskInvalid(f"{method} takes a list of calls, such as [task.call(…)], not {calls!r}.") from None
    given = list(each)
    for one in given:
        if not isinstance(one, Call):
            raise TaskInvalid(f"{method} takes calls, such as task.call(…), not {one!r}.")
        if one.task.app is not app:
            raise TaskInvalid(f"Task {one.task.name} belongs to another app. Call {method} of that one.")
        if one.tx is not None and one.tx is not tx:
            if not method.startswith("enqueue_many"):
                refuse_tx(one, f"A call of {method}")
            raise TaskInvalid(f"Give tx to {method} itself: {method}(calls, tx=conn). All calls share one transaction.")
    return given


def _members(
    app: Enqueueing, calls: Iterable[Call[Any]], on_error: OnError, expires: Duration
) -> tuple[list[NewJob], dict[str, Any]]:
    if on_error not in {"fail", "collect"}:
        raise ValueError(f'on_error is "fail" or "collect", not {on_error!r}.')
    jobs = [call.new_job() for call in checked(app, calls, "fan_out")]
    return jobs, {"on_error": on_error, "expires_in_ms": milliseconds(expires, "expires")}


def _too_old(what: str, address: str, error: ClientError) -> ServerTooOld:
    return ServerTooOld(
        f"The server at {address} is older than this client and does not know {what}: {error} Upgrade the server first."
    )
