"""Fan-out, fan-in and chains: jobs, and one that runs with their results. The store joins them in one transaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from penstock.client.durations import Duration, seconds
from penstock.client.errors import FanOutEnded, FanOutIncomplete, JobUnfinished, StateConflict, TaskInvalid
from penstock.client.loops import refuse_on_loop
from penstock.client.requests import Continuation
from penstock.client.tasks.batch import BatchTask
from penstock.client.tasks.job import RESULT_WAIT_S, Job
from penstock.client.tasks.task import Call, Opted, Takes, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client.app import Penstock
    from penstock.wire.jobs.gathers import GatherAnswer, GatherView

GATHERED = "$gathered"
"""In the payload of a continuation: which parameter takes the results, and whether as a list or as the only one."""

T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the jobs of a fan-out are: `done` of `total` have ended, `failed` of these without a result."""

    done: int
    failed: int
    total: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total}"


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What a continuation's payload says about the results that it takes."""

    into: str
    """The parameter's name."""
    single: bool = False
    """There is one result, which is handed over as it is."""


class Flow(Generic[T_co]):
    """A handle of jobs and the job that runs after them."""

    def __init__(self, app: Penstock, flow_id: str, last: Job[T_co], gather_ids: Sequence[str]) -> None:
        self._app = app
        self.id = flow_id
        """The id of its gather."""
        self.job = last
        """The last job. It is there only once those before it have ended."""
        self._gather_ids = gather_ids

    def __repr__(self) -> str:
        return f"Flow({self.id!r})"

    async def progress(self) -> Progress:
        """Return how many of the first jobs have ended."""
        return _progress(await self._app.gathers.get(self.id))

    def progress_sync(self) -> Progress:
        """Return how many of the first jobs have ended."""
        refuse_on_loop("progress_sync", "progress")
        return _progress(self._app.sync.gathers.get(self.id))

    async def result(self, timeout: Duration | None = None) -> T_co:  # noqa: ASYNC109 - it covers repeats of lost answers
        """Wait for the last job to end and return its result.

        Raises as `Job.result`, and `FanOutEnded` if it will never run: the flow was cancelled or has expired.
        """
        wait_s = RESULT_WAIT_S if timeout is None else seconds(timeout, "timeout")
        until = time.monotonic() + wait_s
        for gather_id in self._gather_ids:
            left_s = max(until - time.monotonic(), 0.0)
            _check_continued(await self._app.gathers.get(gather_id, wait=left_s), wait_s)
        return await self.job.result(max(until - time.monotonic(), 0.0))

    def result_sync(self, timeout: Duration | None = None) -> T_co:
        """Block until the last job has ended and return its result; raises as `result`."""
        refuse_on_loop("result_sync", "result")
        wait_s = RESULT_WAIT_S if timeout is None else seconds(timeout, "timeout")
        until = time.monotonic() + wait_s
        for gather_id in self._gather_ids:
            left_s = max(until - time.monotonic(), 0.0)
            _check_continued(self._app.sync.gathers.get(gather_id, wait=left_s), wait_s)
        return self.job.result_sync(max(until - time.monotonic(), 0.0))

    async def cancel(self) -> None:
        """Say that the last job is not to run. The jobs before it go on."""
        for gather_id in self._gather_ids:
            try:
                await self._app.gathers.cancel(gather_id)
            except StateConflict:  # A chain is beyond this link. Beyond the last, nothing can be cancelled.
                if gather_id == self._gather_ids[-1]:
                    raise
            else:
                return

    def cancel_sync(self) -> None:
        """Say that the last job is not to run. The jobs before it go on."""
        refuse_on_loop("cancel_sync", "cancel")
        for gather_id in self._gather_ids:
            try:
                self._app.sync.gathers.cancel(gather_id)
            except StateConflict:  # As above.
                if gather_id == self._gather_ids[-1]:
                    raise
            else:
                return


class Chain(Generic[T_co]):
    """Calls that run one after another, each with the result of the one before."""

    __slots__ = ("_first", "_rest")

    def __init__(self, first: Call[Any], rest: tuple[Call[Any], ...]) -> None:
        self._first = first
        self._rest = rest

    @classmethod
    def of(cls, first: Call[Any], task: Takes[Any, U]) -> Chain[U]:
        """Return the chain of a call and a task."""
        refuse_tx(first, "A chain")
        return Chain(first, (_continuation(task, single=True),))

    def then(self, task: Takes[T_co, U]) -> Chain[U]:
        """Return the chain with another task at its end."""
        return Chain(self._first, (*self._rest, _continuation(task, single=True)))

    async def enqueue(self) -> Flow[T_co]:
        """Enqueue the first call; each of the others follows in the transaction in which the one before it succeeds."""
        app = self._first.task.app
        return stored(app, self._rest, await app.gathers.create(prepare(self._rest), [self._first.new_job()]))

    def enqueue_sync(self) -> Flow[T_co]:
        """As `enqueue`, for code without an event loop."""
        refuse_on_loop("enqueue_sync", "enqueue")
        app = self._first.task.app
        return stored(app, self._rest, app.sync.gathers.create(prepare(self._rest), [self._first.new_job()]))


def fan_in(then: object, entity: object, *, given: bool) -> Call[Any]:
    """Return the continuation of a fan-out, without the results that it will be called with."""
    return _continuation(then, single=False, before=(entity,) if given else ())


def prepare(links: Sequence[Call[Any]]) -> Continuation:
    """Return the continuation that these calls are: the first of them, with what follows it."""
    continuation: Continuation | None = None
    for link in reversed(links):
        fields = msgspec.structs.asdict(link.new_job())
        continuation = Continuation(**fields, then=UNSET if continuation is None else continuation)
    assert continuation is not None, "there is something to go on with"
    return continuation


def stored(app: Penstock, links: Sequence[Call[Any]], answer: GatherAnswer) -> Flow[Any]:
    """Return a handle of a flow whose jobs are stored; raises `FanOutIncomplete` if some are not."""
    refused = [entry.problem for entry in answer.results if entry.problem is not None]
    if refused:
        error = FanOutIncomplete(
            f"{len(refused)} of {len(answer.results)} jobs could not be enqueued, and the continuation will not run: "
            f"{refused[0].detail or refused[0].title}"
        )
        error.results = answer.results
        raise error
    assert not isinstance(answer.links, UnsetType), "a gather that was opened has links"
    last: Job[Any] = Job(app, answer.links[-1].id, links[-1].task.result.decode)
    return Flow(app, answer.gather.id, last, [link.gather for link in answer.links])


def _continuation(then: object, *, single: bool, before: tuple[object, ...] = ()) -> Call[Any]:
    task, fields = (then.task, then.fields) if isinstance(then, Opted) else (then, None)
    if isinstance(then, Opted):
        refuse_tx(then, "What follows others")
    if isinstance(task, BatchTask) or (isinstance(task, Task) and isinstance(task.app.tasks.get(task.name), BatchTask)):
        raise TaskInvalid(f"Batch task {task.name} cannot follow others: its worker collects single items.")
    if not isinstance(task, Task):
        raise TaskInvalid(f"What follows has to be a task, without its arguments, not {then!r}.")
    names = task.signature.names
    if len(names) <= len(before):
        raise TaskInvalid(f"Task {task.name} follows others, so it needs a parameter for their results.")
    into = names[len(before)]
    payload = task.signature.encode_without(into, before)
    gathered = msgspec.json.encode({GATHERED: Gathered(into=into, single=single)})
    merged = payload[:-1] + (b"," if len(payload) > 2 else b"") + gathered[1:]
    return Call(task, merged, task.fields if fields is None else fields)


def refuse_tx(call: Call[Any] | Opted[..., Any], what: str) -> None:
    """Raise `TaskInvalid` for a call that is to be enqueued in a transaction, where only single jobs can be."""
    if call.tx is not None:
        raise TaskInvalid(
            f"{what} cannot be enqueued with tx=. Enqueue one task in your transaction, and let it start the rest."
        )


def _progress(gather: GatherView) -> Progress:
    return Progress(done=gather.succeeded + gather.failed, failed=gather.failed, total=gather.total)


def _check_continued(gather: GatherView, waited_s: float) -> None:
    """Raise unless the next job is enqueued: it never will be, or was not in time."""
    if gather.state == "done":
        return
    if gather.state in {"expired", "cancelled"}:
        failed = f" {gather.failed} of {gather.total} jobs before it had failed." if gather.failed else ""
        raise FanOutEnded(f"{gather.continuation.task} will not run: the flow {gather.id} is {gather.state}.{failed}")
    raise JobUnfinished(f"{_progress(gather)} jobs of flow {gather.id} have ended within {waited_s:g} seconds.")
