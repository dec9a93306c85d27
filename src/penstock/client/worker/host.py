"""What the lanes of a worker share: the leases, the reports, and what becomes of each attempt."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from penstock.client.errors import (
    AccessDenied,
    Invalid,
    Malformed,
    MethodNotAllowed,
    NotAuthenticated,
    NotFound,
    Overloaded,
    ProblemError,
    StoreUnavailable,
    TransportError,
)
from penstock.client.worker import notices, reports
from penstock.client.worker.attempt import Stop
from penstock.client.worker.execution import Outcome
from penstock.client.worker.troubles import written
from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from penstock.client.app import Penstock
    from penstock.client.worker.attempt import Attempt
    from penstock.client.worker.execution import Execution
    from penstock.client.worker.lane import Lane
    from penstock.client.worker.notices import Notice, Observer
    from penstock.client.worker.reports import Reports
    from penstock.domain.clock import Clock
    from penstock.wire.jobs.answers import Problem, ReportEntry, ReportView

STUCK_S = 5.0
"""How long code may go on after its attempt is over before the process has to be replaced."""
_LEASE_LOST = "urn:penstock:problem:lease-lost"
_PASSING = (TransportError, Overloaded, StoreUnavailable)
"""What kept a report from its answer and will pass: it is sent again while the lease lasts."""
_REFUSALS = (AccessDenied, Invalid, Malformed, MethodNotAllowed, NotAuthenticated, NotFound)
"""Refusals that a worker which has just started does not try again."""


class Counters:
    """How many attempts ended in which way."""

    def __init__(self) -> None:
        self.done = 0
        self.retrying = 0
        self.dead = 0
        self.released = 0
        self.last_at: float | None = None

    @property
    def ended(self) -> int:
        """How many attempts ran to their end, well or not."""
        return self.done + self.retrying + self.dead


class Host:
    """Runs attempts and reports how they ended."""

    def __init__(self, app: Penstock, name: str, observer: Observer, reports_: Reports, execution: Execution) -> None:
        self.app = app
        self.name = name
        self.reports = reports_
        self.leases: dict[str, Attempt] = {}
        """All attempts that are accepted and not yet reported as ended, by token."""
        self.counters = Counters()
        self.strays: list[tuple[Attempt, float]] = []
        """Attempts that are over while a thread still runs their code, and since when."""
        self._observer = observer
        self._execution = execution
        self._clock: Clock = SystemClock()
        self._lost: dict[Lane, float] = {}
        """The lanes whose streams are broken, and since when."""
        self._lost_leases: list[Attempt] = []
        self.opened: set[Lane] = set()
        """The lanes whose streams were open at some time."""
        self.refusal: Exception | None = None
        """Why a stream could not be opened for the first time, if the server does not want to open it."""
        self.next_try_at = 0.0

    def notice(self, notice: Notice) -> None:
        """Pass a notice on."""
        self._observer.notice(notice)

    # -- attempts -------------------------------------------------------------------------------------

    def begin(self, attempt: Attempt, sent_at: float) -> bool:
        """Note that the server accepted an attempt; False if the answer took so long that it must not begin."""
        attempt.begin(sent_at)
        if attempt.leased:
            self.leases[attempt.token] = attempt
            return True
        # The server may have let it begin just now. If so, no other worker has to wait for the lease to end.
        self.reports.submit(reports.release(attempt.token), lambda _answer, _sent_at: None)
        return False

    async def attempt(self, attempt: Attempt, runner: asyncio.Task[Any]) -> None:
        """Run an attempt and hand its report over. Returns when its code has ended, or is not waited for any more."""
        attempt.started = time.monotonic()
        self.end(attempt, await self._execution.run(attempt, runner))

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Report how an attempt ended."""
        if attempt.in_thread:
            self.strays.append((attempt, time.monotonic()))
        if outcome.report is None or not attempt.leased:
            self._over(attempt, "the lease is over")
            return
        self.reports.submit(outcome.report, functools.partial(self._settle, attempt, outcome))

    def stopped(self, attempt: Attempt) -> Outcome:
        """Return how an attempt ended that was stopped, or shared a call with one that was."""
        return self._execution.stopped(attempt)

    async def failed(self, attempt: Attempt, error: BaseException) -> Outcome:
        """Return how an attempt ended whose code raised this."""
        return await self._execution.failed(attempt, error)

    def call_in_thread(self, function: Callable[..., Any], *args: object) -> Awaitable[Any]:
        """Call a function that is no coroutine."""
        return self._execution.call_in_thread(function, *args)

    def release(self, attempt: Attempt) -> None:
        """Give an accepted job back that has not begun."""
        outcome = Outcome("returned", reports.release(attempt.token))
        self.end(attempt, outcome)

    def _settle(
        self,
        attempt: Attempt,
        outcome: Outcome,
        answer: ReportEntry | Exception,
        sent_at: float,  # noqa: ARG002
    ) -> None:
        if isinstance(answer, Exception):
            if isinstance(answer, _PASSING) and attempt.leased:
                assert outcome.report is not None
                self.reports.submit(outcome.report, functools.partial(self._settle, attempt, outcome))
            else:
                self._over(attempt, str(answer))
        elif answer.report is not None:
            self._ended(attempt, outcome, answer.report)
        else:
            assert answer.problem is not None
            self._refused(attempt, outcome, answer.problem)

    def _refused(self, attempt: Attempt, outcome: Outcome, problem: Problem) -> None:
        if problem.type == _LEASE_LOST or outcome.kind != "done":
            self._over(attempt, problem.detail or problem.title)
            return
        # The result is too large, say: then the attempt failed by it, and would again.
        large = problem.type.endswith("too-large")
        trouble = notices.Trouble(
            kind="ResultTooLarge" if large else "ResultInvalid", message=problem.detail or problem.title
        )
        self.end(
            attempt, Outcome("failed", reports.fail(attempt.token, written(trouble, permanent=True)), trouble, True)
        )

    def _ended(self, attempt: Attempt, outcome: Outcome, report: ReportView) -> None:
        """Count what the server took in, and say so."""
        self.leases.pop(attempt.token, None)
        offer, counters = attempt.offer, self.counters
        now = counters.last_at = time.monotonic()
        took_s = now - attempt.started if attempt.started else 0.0
        if outcome.kind == "done":
            counters.done += 1
            if not self._observer.verbose:
                return
        who: dict[str, Any] = {
            "queue": offer.queue,
            "task": attempt.task.name,
            "job": offer.id,
            "attempt": offer.attempt,
        }
        match outcome.kind:
            case "done":
                self.notice(notices.Done(took_s=took_s, **who))
            case "failed" | "discarded" if report.state == "dead":
                counters.dead += 1
                assert outcome.trouble is not None
                self.notice(
                    notices.Died(
                        attempts_max=_attempts(attempt), permanent=outcome.permanent, trouble=outcome.trouble, **who
                    )
                )
            case "failed" | "discarded" if report.state == "retrying":
                counters.retrying += 1
                assert outcome.trouble is not None
                in_s = max((report.until_ms or 0) - self._clock.wall_ms(), 0) / 1_000
                self.notice(
                    notices.Retrying(attempts_max=_attempts(attempt), in_s=in_s, trouble=outcome.trouble, **who)
                )
            case "snoozed":
                self.notice(notices.Snoozed(in_s=outcome.delay_ms / 1_000, **who))
            case "released":
                counters.released += 1
                self.notice(notices.Released(took_s=took_s, progress=attempt.progress, **who))
            case "returned":
                counters.released += 1
            case _:
                reason = "" if outcome.trouble is None else outcome.trouble.message
                self.notice(notices.Cancelled(took_s=took_s, reason=reason, **who))

    def _over(self, attempt: Attempt, reason: str) -> None:
        """Drop an attempt whose lease is over: another worker may have the job."""
        if self.leases.pop(attempt.token, None) is None:
            return
        offer = attempt.offer
        took_s = time.monotonic() - attempt.started if attempt.started else 0.0
        self.notice(
            notices.LeaseOver(
                queue=offer.queue,
                task=attempt.task.name,
                job=offer.id,
                attempt=offer.attempt,
                took_s=took_s,
                reason=reason,
            )
        )

    def is_silent(self) -> bool:
        """Return whether a lease ends now because no heartbeat was answered, which is not known to its task yet."""
        now = time.monotonic()
        return any(
            now >= one.lease_until and not one.times_out and one.stop is not Stop.LEASE_OVER
            for one in self.leases.values()
        )

    def look_after_leases(self) -> None:
        """Stop what has no lease any more, and what has run for too long."""
        now = time.monotonic()
        for attempt in list(self.leases.values()):
            if now >= attempt.lease_until and not attempt.times_out:
                attempt.interrupt(Stop.LEASE_OVER)
                if attempt.runner is None and attempt.started:
                    self._over(attempt, "no heartbeat was answered in time")
            elif now >= min(attempt.deadline, attempt.lease_until) and attempt.runner is not None:
                attempt.interrupt(Stop.TIMEOUT)

    def stuck(self) -> Attempt | None:
        """Return an attempt whose code goes on in a thread although it should have ended some time ago."""
        now = time.monotonic()
        self.strays = [(attempt, since) for attempt, since in self.strays if attempt.in_thread]
        for attempt, since in self.strays:
            if now - since >= STUCK_S:
                return attempt
        return None

    # -- the connection -------------------------------------------------------------------------------

    @property
    def disconnected_s(self) -> float | None:
        """For how long a stream has been broken; None if none is."""
        return None if not self._lost else time.monotonic() - min(self._lost.values())

    def disconnected(self, lane: Lane, error: Exception) -> None:
        """Note that the stream of a lane broke, or cannot be opened."""
        if lane not in self.opened and isinstance(error, _REFUSALS):
            self.refusal = error
            return
        first = not self._lost
        self._lost.setdefault(lane, time.monotonic())
        if not first:
            return
        self._lost_leases = [attempt for attempt in self.leases.values() if attempt.started]
        now = time.monotonic()
        left = [max(attempt.lease_until - now, 0.0) for attempt in self._lost_leases]
        self.notice(
            notices.ConnectionLost(
                address=str(self.app.address),
                reason=_reason(error),
                running=len(left),
                lease_left_s=min(left) if left else None,
            )
        )

    def connected(self, lane: Lane) -> None:
        """Note that the stream of a lane is open."""
        self.opened.add(lane)
        since = self._lost.pop(lane, None)
        if since is None or self._lost:
            return
        kept = sum(attempt.stop is not Stop.LEASE_OVER for attempt in self._lost_leases)
        ran, self._lost_leases = len(self._lost_leases), []
        self.notice(notices.ConnectionBack(after_s=time.monotonic() - since, running=ran, kept=kept))

    def pausing(self, pause_s: float) -> None:
        """Note when the next try to open a stream is."""
        self.next_try_at = time.monotonic() + pause_s


def _attempts(attempt: Attempt) -> int:
    """Return how many attempts the task may fail; 0 if the queue decides."""
    return 0 if attempt.task.retry is None else attempt.task.retry.attempts


def _reason(error: Exception) -> str:
    return error.problem.title if isinstance(error, ProblemError) and not str(error) else str(error)
