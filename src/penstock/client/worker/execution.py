"""Runs the code of a task for one attempt, and says what to report."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.client.errors import ClientError, JobCancelled, JobDead, ResultTooLarge, TransportError
from penstock.client.tasks.context import Context, enter
from penstock.client.tasks.flows import GATHERED, Gathered
from penstock.client.tasks.retries import Discard, RetryAfter, Snooze
from penstock.client.tracing import attempt_span, tracing
from penstock.client.worker import reports
from penstock.client.worker.attempt import Stop
from penstock.client.worker.notices import Trouble
from penstock.client.worker.troubles import is_permanent, trouble_of, written

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.client.app import Penstock
    from penstock.client.tasks.app import Middleware, Next
    from penstock.client.tasks.task import Task
    from penstock.client.worker.attempt import Attempt
    from penstock.client.worker.children import Children
    from penstock.client.worker.threads import Threads
    from penstock.wire.jobs.gathers import MemberView

_log = logging.getLogger("penstock.worker")

PRECISE_TIMEOUT_S = 5.0
"""A shorter timeout gets a timer of its own; others are looked after a few times a second."""
_GATHERED_KEY = f'"{GATHERED}"'.encode()


class Outcome(NamedTuple):
    """How an attempt ended, and the report that says so; None if nothing is to be reported."""

    kind: str
    """`done`, `failed`, `snoozed`, `discarded`, `cancelled`, `released` or `lost`."""
    report: bytes | None
    trouble: Trouble | None = None
    permanent: bool = False
    delay_ms: int = 0
    error: BaseException | None = None
    """What the task's code raised."""


class Execution:
    """Runs attempts of one app's tasks."""

    def __init__(self, app: Penstock, threads: Threads, children: Children) -> None:
        self._app = app
        self._threads = threads
        self._children = children

    async def run(self, attempt: Attempt, runner: asyncio.Task[Any]) -> Outcome:
        """Run the task's code in `runner`, the present task, to its end or until the attempt is interrupted."""
        if not attempt.leased:  # The process was stopped, say, since the attempt was accepted.
            attempt.interrupt(Stop.LEASE_OVER)
        attempt.runner = runner
        timer: asyncio.TimerHandle | None = None
        if attempt.offer.timeout_ms < PRECISE_TIMEOUT_S * 1_000:
            left_s = max(attempt.deadline - time.monotonic(), 0.0)
            timer = asyncio.get_running_loop().call_later(left_s, attempt.interrupt, Stop.TIMEOUT)
        enter(attempt)
        try:
            if attempt.stop is not None:  # It was interrupted before its code began.
                return self.stopped(attempt)
            result = sized(attempt.task, await self._call(attempt))
            attempt.runner = None
            if attempt.events is not None:
                await attempt.events.flush()
            return Outcome("done", reports.complete(attempt.token, result))
        except BaseException as error:
            attempt.runner = None
            if isinstance(error, asyncio.CancelledError) and attempt.stop is not None:
                return await self.interrupted(attempt)
            if not is_of_task(error, runner):
                raise
            return await self.failed(attempt, error)
        finally:
            attempt.runner = None
            while attempt.stop is not None and runner.cancelling():
                runner.uncancel()
            if timer is not None:
                timer.cancel()

    def _call(self, attempt: Attempt) -> Awaitable[Any]:
        """Call the task with the arguments of its job; a coroutine of its own is made only where one is needed."""
        offer = attempt.offer
        if isinstance(offer.gathered, str):
            return self._call_gathered(attempt, offer.gathered, bytes(offer.payload))
        return self._call_with(attempt, *attempt.task.signature.decode(offer.payload))

    async def _call_gathered(self, attempt: Attempt, gather_id: str, payload: bytes) -> Any:  # noqa: ANN401 - whatever the task returns
        """Call a continuation, with the results of what ran before it if its payload asks for them."""
        if _GATHERED_KEY in payload:
            args, kwargs = await self._gathered_arguments(attempt, gather_id, payload)
        else:
            args, kwargs = attempt.task.signature.decode(payload)
        return await self._call_with(attempt, args, kwargs)

    def _call_with(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        task = attempt.task
        if self._app.middlewares or tracing():
            return self._onion(attempt, args, kwargs)
        if task.is_async:
            return task.function(*args, **kwargs)  # type: ignore[no-any-return] # It is a coroutine.
        return self._call_plain(attempt, args, kwargs)

    async def _onion(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        """Call the task inside its middlewares, the first of them outermost, all inside a span."""
        task, context = attempt.task, attempt.context

        async def innermost(_: Context) -> object:
            if task.is_async:
                return await task.function(*args, **kwargs)
            return await self._call_plain(attempt, args, kwargs)

        call_next: Next = innermost
        for middleware in reversed(self._app.middlewares):
            call_next = _around(middleware, call_next)
        fields = {"penstock.job": context.id, "penstock.queue": context.queue, "penstock.attempt": context.attempt}
        with attempt_span(f"run {task.name}", attempt.offer.traceparent, fields):
            return await call_next(context)

    async def _call_plain(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        """Call a function that is no coroutine, in a process or in a thread."""
        task = attempt.task
        if task.run_in == "process":
            return await self._children.run(attempt, args, kwargs)

        def work() -> Any:  # noqa: ANN401 - as above
            try:
                return task.function(*args, **kwargs)
            finally:
                attempt.in_thread = False

        attempt.in_thread = True
        value = await self._threads.run(work)
        # A plain function may wrap a coroutine.
        return await value if inspect.isawaitable(value) else value

    def call_in_thread(self, function: Callable[..., Any], *args: object) -> Awaitable[Any]:
        """Call a function that is no coroutine."""
        return self._threads.run(function, *args)

    # -- how it ended -------------------------------------------------------------------------------

    async def failed(self, attempt: Attempt, error: BaseException) -> Outcome:
        """Return how an attempt ended whose code raised this."""
        token = attempt.token
        if isinstance(error, Snooze):
            return Outcome("snoozed", reports.snooze(token, error.delay_ms), delay_ms=error.delay_ms)
        if attempt.stop is Stop.LEASE_OVER:
            return self.stopped(attempt)
        if attempt.stop is Stop.CANCELLED:
            # Its code stopped by an exception of its own, as functions in threads do.
            return Outcome("cancelled", reports.release(token))
        if isinstance(error, Discard):
            return await self._discard(attempt, error)
        trouble = trouble_of(error, self._app.kind_of)
        permanent = is_permanent(error, attempt.task.retry)
        await self._tell_hooks(attempt.context, error)
        retry_after_ms = error.delay_ms if isinstance(error, RetryAfter) else None
        report = reports.fail(token, written(trouble, permanent=permanent, retry_after_ms=retry_after_ms))
        return Outcome("failed", report, trouble, permanent, error=error)

    async def interrupted(self, attempt: Attempt) -> Outcome:
        """Return how an attempt ended whose code was interrupted."""
        outcome = self.stopped(attempt)
        if attempt.stop is Stop.TIMEOUT and outcome.trouble is not None:
            await self._tell_hooks(attempt.context, TimeoutError(outcome.trouble.message))
        return outcome

    def stopped(self, attempt: Attempt) -> Outcome:
        """Return how an attempt ends that is stopped for its reason."""
        match attempt.stop:
            case Stop.TIMEOUT:
                took_s = attempt.offer.timeout_ms / 1_000
                trouble = Trouble(kind="timeout", message=f"The attempt ran for more than {took_s:g} s.")
                return Outcome("failed", reports.fail(attempt.token, written(trouble)), trouble)
            case Stop.LEASE_OVER:
                return Outcome("lost", None)
            case Stop.CANCELLED:
                return Outcome("cancelled", reports.release(attempt.token))
            case _:
                return Outcome("released", reports.release(attempt.token))

    async def _discard(self, attempt: Attempt, error: Discard) -> Outcome:
        """Cancel the job; what ends the attempt after that makes it cancelled."""
        trouble = Trouble(kind="Discarded", message=str(error))
        permanent = False
        try:
            await self._app.jobs.cancel(attempt.offer.id, timeout=max(attempt.lease_until - time.monotonic(), 1.0))
        except TransportError as error_on_the_way:
            # The attempt counts as failed, and the next one can discard the job.
            _log.warning("job %s was discarded but not cancelled: %s", attempt.offer.id, error_on_the_way)
        except ClientError as denied:
            # A token that can only work cannot cancel: then the job is dead, which also ends it.
            _log.warning("job %s was discarded but cannot be cancelled: %s", attempt.offer.id, denied)
            permanent = True
        report = reports.fail(attempt.token, written(trouble, permanent=permanent))
        return Outcome("discarded", report, trouble, permanent)

    async def _tell_hooks(self, context: Context, error: BaseException) -> None:
        for hook in self._app.failure_hooks:
            try:
                said = hook(context, error)  # type: ignore[arg-type] # Any of a task is one.
                if inspect.isawaitable(said):
                    await said
            except Exception:  # noqa: BLE001 - the user's own code, whose fault must not be the job's
                _log.exception("the failure hook %r failed", hook)

    # -- fan-in ---------------------------------------------------------------------------------------

    async def _gathered_arguments(
        self, attempt: Attempt, gather_id: str, payload: bytes
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a continuation, with the results of what ran before it."""
        given = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        wanted = msgspec.json.decode(given.pop(GATHERED), type=Gathered)
        members: list[MemberView] = []
        after: int | None = None
        while True:
            page = await self._app.gathers.results(gather_id, after=after, limit=500)
            members += page.results
            if page.after is None:
                break
            after = page.after
        results = [_raw(member) for member in members if member.state == "succeeded"]
        if wanted.single and len(results) == len(members) == 1:
            given[wanted.into] = results[0]
        else:
            given[wanted.into] = msgspec.Raw(b"[%b]" % b",".join(results))
        args, kwargs = attempt.task.signature.decode(msgspec.json.encode(given))
        if len(results) < len(members):
            values = attempt.task.signature.argument(wanted.into, args, kwargs)
            for place, member in enumerate(members):
                if member.state != "succeeded":
                    values.insert(place, _ended(member))
        return args, kwargs


def is_of_task(error: BaseException, runner: asyncio.Task[Any]) -> bool:
    """Return whether an exception is a failure of the task's code, and not a wish that `runner` itself ends."""
    if isinstance(error, asyncio.CancelledError):
        return not runner.cancelling()  # The code awaited something that was cancelled.
    return not isinstance(error, KeyboardInterrupt | GeneratorExit)


def sized(task: Task[..., Any, Any], value: Any) -> bytes:  # noqa: ANN401 - whatever the task returned
    """Write a result; raises `ResultInvalid`, or `ResultTooLarge` if no server would take it in a report."""
    written = task.result.encode(value)
    if len(written) > reports.BYTES_MAX:
        # The server would refuse the whole request, and with it the reports of other jobs.
        raise ResultTooLarge(
            f"The result of task {task.name} has {len(written):,} bytes. Store it elsewhere and return where it is."
        )
    return written


def _around(middleware: Middleware, call_next: Next) -> Next:
    async def wrapped(context: Context) -> object:
        return await middleware(context, call_next)

    return wrapped


def _raw(member: MemberView) -> msgspec.Raw:
    return member.result if isinstance(member.result, msgspec.Raw) else msgspec.Raw(b"null")


def _ended(member: MemberView) -> JobDead | JobCancelled:
    kind: Callable[..., JobDead | JobCancelled] = JobDead if member.state == "dead" else JobCancelled
    failure = member.failure
    why = "" if failure is None else f" {failure.kind}: {failure.message}"
    return kind(member.id, f"Job {member.id} is {member.state}.{why}", failure)
