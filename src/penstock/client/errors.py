"""What a client's call can raise: each problem of the job API as a class, and what can go wrong on the way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.job import Failure
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
    """A blocking call was made where an event loop runs, which it would block. Await the async method there."""


class WrongProcess(ClientError, RuntimeError):
    """A `memory:` store lives in the process that opened it; a forked child has no access to it."""


class TokenInvalid(ClientError, ValueError):
    """The token cannot be sent, or its file cannot be read."""


class NotTrusted(ClientError):
    """The server's certificate is not one that the client trusts. `ca_file` names the authorities to trust."""


# -- tasks ----------------------------------------------------------------------------------------


class TaskInvalid(ClientError, TypeError):
    """A function cannot be a task as it is declared; the message says what to change."""


class TaskExists(TaskInvalid):
    """The app has another task of this name."""


class TaskNotFound(ClientError, LookupError):
    """The app has no task of this name. It may be in a module that was not imported."""


class ArgumentsInvalid(ClientError, TypeError):
    """The arguments do not fit the task's signature, or cannot be written as JSON."""


class ResultInvalid(ClientError, TypeError):
    """A result does not fit the task's return type, or cannot be written as JSON."""


class ResultTooLarge(ResultInvalid):
    """A result has more bytes than the server, or the store of an idempotency record, keeps."""


class EventInvalid(ClientError, ValueError):
    """An event cannot be published: its data cannot be written as JSON, or is too large."""


class StepInvalid(ClientError, ValueError):
    """A step has no name that it could be recorded under, or nothing to call."""


class NoCurrentJob(ClientError, LookupError):
    """`current()` was called where no job runs."""


class NoTransaction(ClientError, RuntimeError):
    """A connection commits each statement by itself, where a transaction of yours has to be open."""


class OutboxInvalid(ClientError, ValueError):
    """An outbox does not take this: the job is too large, or there are too many at once."""


class RelayFailed(ClientError):
    """A relay cannot run as it was asked to; the message says why."""


class OutboxMissing(RelayFailed):
    """The database has no table `penstock_outbox`."""


class DatabaseUnreachable(RelayFailed):
    """The database of a relay cannot be reached or read."""


class AttemptStale(ClientError, RuntimeError):
    """A later attempt of the job has committed an effect, so this one must not go on."""


class JobEnded(ClientError):
    """A job ended without a result."""

    def __init__(self, job_id: str, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.failure = failure
        """What its last attempt failed with."""

    def __reduce__(self) -> tuple[type[JobEnded], tuple[str, str, Failure | None]]:
        return type(self), (self.job_id, str(self), self.failure)


class JobDead(JobEnded):
    """The job failed for good: out of attempts, a permanent failure, or lost too often. It can be retried."""


class JobCancelled(JobEnded):
    """The job was cancelled, discarded by its task, or expired before it began."""


class JobUnfinished(ClientError, TimeoutError):
    """The job did not end within the timeout of `result`. It goes on."""


class FanOutIncomplete(ClientError):
    """Some jobs of a fan-out could not be enqueued: `results` says which. The continuation will not run."""


class FanOutEnded(ClientError):
    """A fan-out ended without its continuation: it was cancelled, or expired first."""


class TransactionUnsupported(ClientError, RuntimeError):
    """The database of a connection cannot take jobs: it has no schema of Penstock's, or the role has no right to it."""


class ServerTooOld(ClientError):
    """The server does not have what this client needs. Upgrade the server before its clients."""


class WorkerInvalid(ClientError, ValueError):
    """A worker cannot run as it was asked to; the message says why."""


class AlreadyTesting(ClientError, RuntimeError):
    """`app.testing()` was entered while another block of the same app is open."""


class RunsForever(ClientError, RuntimeError):
    """A test ran as many jobs as it may, and there are more."""


# -- idempotency ----------------------------------------------------------------------------------


class IdempotencyError(ClientError):
    """`Idempotency` did not run a function, or could not record that it ran."""


class IdempotencyInProgress(IdempotencyError):
    """Another holder works on this key now. Nothing was run."""

    def __init__(self, key: str, retry_after: float) -> None:
        super().__init__(
            f"Another holder works on {key}. Its lease ends in {retry_after:g} seconds, unless it is renewed."
        )
        self.key = key
        self.retry_after = retry_after
        """In how many seconds the lease ends: the key is free then if its holder has died."""

    def __reduce__(self) -> tuple[type[IdempotencyInProgress], tuple[str, float]]:
        return type(self), (self.key, self.retry_after)


class IdempotencyLeaseLost(IdempotencyError):
    """Another holder took the key over, so this one cannot complete it. The record was not changed."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The lease on {key} is lost: it ended before this holder had completed, and another took the key over."
        )
        self.key = key

    def __reduce__(self) -> tuple[type[IdempotencyLeaseLost], tuple[str]]:
        return type(self), (self.key,)


class FingerprintMismatch(IdempotencyError):
    """The key stands for another payload. Nothing was run."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was used with another payload before. Use another key for other work.")
        self.key = key

    def __reduce__(self) -> tuple[type[FingerprintMismatch], tuple[str]]:
        return type(self), (self.key,)


class IdempotencyInvalid(IdempotencyError, TypeError):
    """A function cannot be wrapped as it is declared; the message says what to change."""


class IdempotencyKeyInvalid(IdempotencyError, ValueError):
    """A call has no usable key: a part of it is missing, empty, or of a type that is no key."""


class RecordsInvalid(IdempotencyError):
    """The table of records is missing, or is not one of ours; the message says what is wrong with it."""


class RecordsUnavailable(IdempotencyError):
    """The store of records cannot be reached, is locked, or refuses the credentials."""


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


# -- queues of SQS --------------------------------------------------------------------------------


class ConsumerInvalid(ClientError, ValueError):
    """A consumer or handler of an SQS queue cannot work as it was asked to; the message says what to change."""


class QueueUnusable(ClientError):
    """An SQS queue cannot be used: missing, not reachable, or not with these credentials. `__cause__` has more."""


class BodyInvalid(ClientError, ValueError):
    """The body of an SQS message cannot be decoded."""


# -- problems -------------------------------------------------------------------------------------


class ProblemError(ClientError):
    """The server refused the call (RFC 9457). An unknown type of problem is a plain one."""

    def __init__(self, problem: Problem) -> None:
        said = problem.detail or problem.title
        # What is wrong with a value is said without its name: "Expected `int` <= 9."
        super().__init__(f"{problem.field}: {said}" if problem.field and problem.field not in said else said)
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
