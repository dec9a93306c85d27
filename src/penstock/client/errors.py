"""What a client's call can raise: each problem of the job API as a class, and what can go wrong on the way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.wire.jobs.answers import BatchEntry, Problem


class ClientError(PenstockError):
    """A call did not do what was asked. All of this module's errors are such."""

    results: Sequence[BatchEntry] = ()
    """What became of the jobs before those that failed, if this is of `enqueue_many`."""


class UrlInvalid(ClientError, ValueError):
    """The URL is none that `Penstock` understands."""


class Closed(ClientError):
    """The `Penstock` was closed, or its `async with` or `with` block has ended."""


class WrongThread(ClientError, RuntimeError):
    """`app.sync` was called where an event loop runs, which it would block. Use the async methods there."""


class WrongProcess(ClientError, RuntimeError):
    """A `memory:` store lives in the process that opened it; a forked child has no access to it."""


class TokenInvalid(ClientError, ValueError):
    """The token cannot be sent, or its file cannot be read."""


class NotTrusted(ClientError):
    """The server's certificate is not one that the client trusts. `ca_file` names the authorities to trust."""


# -- on the way -----------------------------------------------------------------------------------


class TransportError(ClientError):
    """No complete answer came. The call may or may not have had its effect; the same call may be repeated."""


class ConnectionFailed(TransportError, ConnectionError):
    """No server could be reached, or the connection was lost before the answer was whole."""

    at_once = False
    """A connection that had been idle was closed before anything came: the call can be repeated without a pause."""


class DeadlineExceeded(TransportError, TimeoutError):
    """The call's time was up."""


class AnswerInvalid(TransportError):
    """What answered does not speak the job API: the answer is no HTTP, no JSON, of another shape, or too large."""


# -- the owner of a file --------------------------------------------------------------------------


class OwnerError(ClientError):
    """The owner of an embedded store cannot be reached or started."""


class OwnerNotResponding(OwnerError):
    """The owner accepts connections and does not answer: it is stopped, or in a debugger. It is never killed."""

    def __init__(self, path: str, pid: int, waited_s: float) -> None:
        super().__init__(
            f"The owner of {path}, pid {pid}, has not answered for {waited_s:g} seconds. "
            "Nobody can take over while it lives: continue it (kill -CONT) or end it."
        )
        self.path = path
        self.pid = pid
        self.waited_s = waited_s

    def __reduce__(self) -> tuple[type[OwnerNotResponding], tuple[str, int, float]]:
        return type(self), (self.path, self.pid, self.waited_s)


class OwnerNotFound(OwnerError):
    """No process owns the file, and this client was told not to start one, or could not wait for one."""


class OwnerNotStarted(OwnerError):
    """An owner could not be started: the message says why."""


class OwnerAccessDenied(OwnerError):
    """The user of this process may not use the file."""


class EmbeddedUnsupported(OwnerError):
    """This platform cannot share a SQLite file between processes."""


# -- problems -------------------------------------------------------------------------------------


class ProblemError(ClientError):
    """The server refused the call (RFC 9457). An unknown type of problem is a plain one."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem

    def __reduce__(self) -> tuple[type[ProblemError], tuple[Problem]]:
        return type(self), (self.problem,)

    @property
    def type(self) -> str:
        """The problem's type, a URN that never changes."""
        return self.problem.type

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status

    @property
    def field(self) -> str:
        """The part of the request that is wrong, as `jobs[3].task`; empty if it is none."""
        return self.problem.field

    @property
    def retry_after(self) -> float | None:
        """In how many seconds the server expects to take the call."""
        wait_ms = self.problem.retry_after_ms
        return None if wait_ms is None else wait_ms / 1_000


class Malformed(ProblemError):
    """The server cannot read the request."""


class IdempotencyKeyNeeded(ProblemError):
    """The queue is strict: it takes no job without an idempotency key."""


class NotAuthenticated(ProblemError):
    """The server needs a token, or does not know this one."""


class AccessDenied(ProblemError):
    """The token does not allow this."""


class NotFound(ProblemError):
    """The server has no such route. It may be older than this client."""


class JobNotFound(ProblemError):
    """No job has this id, or it was removed."""


class QueueNotFound(ProblemError):
    """No queue has this name."""


class ScheduleNotFound(ProblemError):
    """No schedule has this name."""


class OperationNotFound(ProblemError):
    """No operation has this id."""


class GatherNotFound(ProblemError):
    """No gather has this id."""


class StreamNotFound(ProblemError):
    """No stream has this name; it may have ended."""


class LeaseNotFound(ProblemError):
    """The token is none of this service."""


class MethodNotAllowed(ProblemError):
    """The server does not do this at this route. It may be older than this client."""


class LeaseLost(ProblemError):
    """The lease is over: the job was offered again, finished or cancelled. Nothing was changed."""


class StateConflict(ProblemError):
    """The job's state does not allow this."""


class JobExists(ProblemError):
    """Another job has this id."""


class GatherExists(ProblemError):
    """Another gather has this id."""


class IdempotencyKeyBusy(ProblemError):
    """The first request with this key is still being stored."""


class QueueExists(ProblemError):
    """The queue exists with other settings."""


class QueueChanged(ProblemError):
    """The queue was changed since the revision that was named."""


class TooManyEvents(ProblemError):
    """The job has as many events as its queue allows."""


class TooLarge(ProblemError):
    """A payload, a result, an event or the whole request is too large."""


class Invalid(ProblemError):
    """The request does not make sense; `field` names the part that is wrong."""


class IdempotencyKeyReused(ProblemError):
    """The key stands for another request."""


class ScheduleInvalid(ProblemError):
    """The cron expression, the time zone or the interval does not make sense."""


class TooMany(ProblemError):
    """There are too many jobs: `reason` says of what, `retry_after` when to try again."""

    @property
    def reason(self) -> str:
        """Of what there is too much: `queue_full`, `rate_global` or `rate_tenant`."""
        return self.problem.reason


class TooManyWaiting(ProblemError):
    """Too many callers wait already; `retry_after` says when to try again."""


class ServerFailed(ProblemError):
    """The server failed by a fault of its own."""


class Overloaded(ProblemError):
    """The server has too much to do."""


class StoreUnavailable(ProblemError):
    """The server's store does not answer."""


PREFIX = "urn:penstock:problem:"
PROBLEM_ERRORS: dict[str, type[ProblemError]] = {
    "malformed": Malformed,
    "idempotency-key-needed": IdempotencyKeyNeeded,
    "not-authenticated": NotAuthenticated,
    "access-denied": AccessDenied,
    "not-found": NotFound,
    "job-not-found": JobNotFound,
    "queue-not-found": QueueNotFound,
    "schedule-not-found": ScheduleNotFound,
    "operation-not-found": OperationNotFound,
    "gather-not-found": GatherNotFound,
    "stream-not-found": StreamNotFound,
    "lease-not-found": LeaseNotFound,
    "method-not-allowed": MethodNotAllowed,
    "lease-lost": LeaseLost,
    "state-conflict": StateConflict,
    "job-exists": JobExists,
    "gather-exists": GatherExists,
    "idempotency-key-busy": IdempotencyKeyBusy,
    "queue-exists": QueueExists,
    "queue-changed": QueueChanged,
    "too-many-events": TooManyEvents,
    "too-large": TooLarge,
    "invalid": Invalid,
    "idempotency-key-reused": IdempotencyKeyReused,
    "schedule-invalid": ScheduleInvalid,
    "too-many": TooMany,
    "too-many-waiting": TooManyWaiting,
    "bug": ServerFailed,
    "overloaded": Overloaded,
    "store-unavailable": StoreUnavailable,
}
"""By the end of the problem's type. A test compares this with the server's own table."""


def error_of(problem: Problem) -> ProblemError:
    """Return the exception that a problem is raised as."""
    return PROBLEM_ERRORS.get(problem.type.removeprefix(PREFIX), ProblemError)(problem)
