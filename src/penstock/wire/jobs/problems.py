"""Problems (RFC 9457): each error of the domain has a status and a type of its own, which never changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.domain import errors, job_errors
from penstock.domain.job_errors import JobInvalid, JobRefused
from penstock.domain.limits import SECOND_MS
from penstock.wire.http import Response
from penstock.wire.jobs.answers import Problem

if TYPE_CHECKING:
    from penstock.domain.errors import PenstockError

CONTENT_TYPE = "application/problem+json"
PREFIX = "urn:penstock:problem:"
_PLACE = re.compile(r" - at `\$\.?(?P<field>[^`]*)`$")
_UNKNOWN_FIELD = re.compile(r"(?:unknown|missing required) field `(?P<field>[^`]*)`")


class Kind(msgspec.Struct, frozen=True):
    """A kind of problem: the status, the end of the type's URN, and the title."""

    status: int
    name: str
    title: str


PROBLEMS: dict[type[PenstockError], Kind] = {
    job_errors.JobDoesNotExist: Kind(404, "job-not-found", "There is no such job"),
    job_errors.JobExists: Kind(409, "job-exists", "Another job has this id"),
    job_errors.JobQueueDoesNotExist: Kind(404, "queue-not-found", "There is no such queue"),
    job_errors.JobQueueExists: Kind(409, "queue-exists", "The queue exists with other settings"),
    job_errors.JobQueueChanged: Kind(409, "queue-changed", "The queue was changed meanwhile"),
    job_errors.LeaseLost: Kind(409, "lease-lost", "The lease is over"),
    job_errors.LeaseTokenInvalid: Kind(404, "lease-not-found", "There is no such lease"),
    job_errors.JobStateConflict: Kind(409, "state-conflict", "The job's state does not allow this"),
    job_errors.IdempotencyKeyReused: Kind(422, "idempotency-key-reused", "The key came with another request before"),
    job_errors.IdempotencyKeyBusy: Kind(409, "idempotency-key-busy", "The first request with this key is under way"),
    job_errors.IdempotencyKeyNeeded: Kind(400, "idempotency-key-needed", "This queue takes no job without a key"),
    job_errors.JobInvalid: Kind(422, "invalid", "Invalid request"),
    job_errors.JobTooLarge: Kind(413, "too-large", "This is too large"),
    job_errors.JobRefused: Kind(429, "too-many", "There are too many jobs"),
    job_errors.TooManyEvents: Kind(409, "too-many-events", "The job has as many events as it may"),
    job_errors.ScheduleDoesNotExist: Kind(404, "schedule-not-found", "There is no such schedule"),
    job_errors.ScheduleInvalid: Kind(422, "schedule-invalid", "Invalid schedule"),
    job_errors.OperationDoesNotExist: Kind(404, "operation-not-found", "There is no such operation"),
    job_errors.GatherDoesNotExist: Kind(404, "gather-not-found", "There is no such gather"),
    job_errors.GatherExists: Kind(409, "gather-exists", "Another gather has this id"),
    job_errors.JobExists: Kind(409, "job-exists", "Another job has this id"),
    job_errors.StreamDoesNotExist: Kind(404, "stream-not-found", "There is no such stream"),
    job_errors.NotAuthenticated: Kind(401, "not-authenticated", "Who asks is not known"),
    errors.AccessDenied: Kind(403, "access-denied", "This is not allowed"),
    errors.OverLimit: Kind(429, "too-many-waiting", "Too many wait already"),
    errors.ServerOverloaded: Kind(503, "overloaded", "The server has too much to do"),
    errors.StoreUnavailable: Kind(503, "store-unavailable", "The store does not answer"),
}
MALFORMED = Kind(400, "malformed", "The request cannot be read")
INVALID = PROBLEMS[JobInvalid]
TOO_LARGE = PROBLEMS[job_errors.JobTooLarge]
NOT_FOUND = Kind(404, "not-found", "There is nothing here")
NOT_ALLOWED = Kind(405, "method-not-allowed", "This is not done here")
BUG = Kind(500, "bug", "The server failed")

STORE_RETRY_MS = SECOND_MS


def kinds() -> list[Kind]:
    """List all kinds of problems, by status and name."""
    every = {*PROBLEMS.values(), MALFORMED, NOT_FOUND, NOT_ALLOWED, BUG}
    return sorted(every, key=lambda kind: (kind.status, kind.name))


def problem_of(error: PenstockError) -> Problem:
    """Tell an error of the domain."""
    kind = PROBLEMS.get(type(error), INVALID)
    problem = make_problem(kind, error.reason)
    if isinstance(error, JobRefused):
        problem.reason = error.why.value
        problem.retry_after_ms = error.retry_after_ms
    elif isinstance(error, JobInvalid):
        problem.field = error.field
    elif kind.status in {429, 503}:
        problem.retry_after_ms = STORE_RETRY_MS
    return problem


def make_problem(kind: Kind, detail: str, field: str = "") -> Problem:
    """Tell a problem of this kind."""
    return Problem(type=PREFIX + kind.name, title=kind.title, status=kind.status, detail=detail, field=field)


def problem_of_shape(error: Exception) -> Problem:
    """Tell what is wrong with the form of a request: it is no JSON, or not of the shape that is expected."""
    if not isinstance(error, msgspec.ValidationError):
        detail = "It is nested too deeply." if isinstance(error, RecursionError) else f"{error}."
        return make_problem(MALFORMED, f"The body is not JSON: {detail}")
    text = str(error)
    place = _PLACE.search(text)
    path = place["field"] if place else ""
    unknown = _UNKNOWN_FIELD.search(text)
    if unknown is not None:
        path = f"{path}.{unknown['field']}" if path else unknown["field"]
    detail = text[: place.start()] if place else text
    return make_problem(INVALID, f"{detail}.", path)


def problem_response(problem: Problem, *headers: tuple[str, str]) -> Response:
    """Make a problem an answer."""
    told = [("content-type", CONTENT_TYPE), ("cache-control", "no-store"), *headers]
    if problem.retry_after_ms is not None:
        # The header is in whole seconds, and a client must not come back too early.
        told.append(("retry-after", str(-(-problem.retry_after_ms // SECOND_MS))))
    return Response(status=problem.status, headers=told, body=msgspec.json.encode(problem))
