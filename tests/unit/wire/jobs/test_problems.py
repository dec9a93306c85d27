from __future__ import annotations

import importlib
import json
import pkgutil

import msgspec
import pytest

import penstock.domain
import penstock.engine
import penstock.server
import penstock.store
import penstock.wire
from penstock.domain.errors import AccessDenied, OverLimit, PenstockError, ServerOverloaded, StoreUnavailable
from penstock.domain.job_errors import JobError, JobInvalid, JobRefused, JobTooLarge, LeaseLost, TooMany
from penstock.wire.jobs.problems import (
    BUG,
    MALFORMED,
    NOT_ALLOWED,
    NOT_FOUND,
    PROBLEMS,
    problem_of,
    problem_of_shape,
    problem_response,
)
from penstock.wire.jobs.shapes import NewJob, NewJobs


def every_subclass_of(kind: type[PenstockError]) -> set[type[PenstockError]]:
    found = set(kind.__subclasses__())
    return found.union(*(every_subclass_of(child) for child in found))


def test_every_error_of_the_job_service_has_a_problem() -> None:
    for package in (penstock.domain, penstock.wire, penstock.store, penstock.engine, penstock.server):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    assert set(PROBLEMS) - {AccessDenied, OverLimit, ServerOverloaded, StoreUnavailable} == every_subclass_of(JobError)


def test_no_two_problems_share_a_type() -> None:
    kinds = [*PROBLEMS.values(), MALFORMED, NOT_FOUND, NOT_ALLOWED, BUG]
    assert len({kind.name for kind in kinds}) == len(kinds)
    assert all(400 <= kind.status < 600 for kind in kinds)


def test_a_problem_says_what_and_where() -> None:
    assert msgspec.to_builtins(problem_of(JobInvalid("priority is too high.", "priority"))) == {
        "type": "urn:penstock:problem:invalid",
        "title": "Invalid request",
        "status": 422,
        "detail": "priority is too high.",
        "field": "priority",
    }
    assert problem_of(JobTooLarge("payload is too large.", "payload")).status == 413
    assert problem_of(LeaseLost("It is over.")).status == 409


@pytest.mark.parametrize(
    ("error", "status", "reason", "header"),
    [
        (JobRefused("Too many.", TooMany.QUEUE_FULL, 1_001), 429, "queue_full", "2"),
        (JobRefused("Too many.", TooMany.RATE_GLOBAL, 1_000), 429, "rate_global", "1"),
        (JobRefused("Too many.", TooMany.RATE_TENANT, 1), 429, "rate_tenant", "1"),
        (StoreUnavailable("It is away."), 503, "", "1"),
    ],
)
def test_who_is_to_try_again_is_told_when(error: PenstockError, status: int, reason: str, header: str) -> None:
    response = problem_response(problem_of(error))
    assert response.status == status
    assert dict(response.headers)["retry-after"] == header
    assert dict(response.headers)["content-type"] == "application/problem+json"
    assert json.loads(response.body).get("reason", "") == reason


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b'{"queue": "q", "task": "t", "priority": 10}', 422, "priority"),
        (b'{"queue": "q", "task": "t", "retry": {"factor": 0}}', 422, "retry.factor"),
        (b'{"queue": "q"}', 422, "task"),
        (b'{"queue": "q", "task": "t", "prioriy": 1}', 422, "prioriy"),
        (b'{"queue": "q", "task": "t", "tags": ["a", ""]}', 422, "tags[1]"),
        (b"[]", 422, ""),
        (b'{"queue"', 400, ""),
        (b"\xff", 400, ""),
        (b'{"queue": "q", "task": "\xff"}', 400, ""),
        (b'{"queue": "q", "task": "t", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, ""),
    ],
)
def test_what_is_wrong_with_a_body_is_told_by_the_name_of_its_field(body: bytes, status: int, field: str) -> None:
    with pytest.raises((ValueError, RecursionError)) as raised:
        msgspec.json.decode(body, type=NewJob)
    problem = problem_of_shape(raised.value)
    assert (problem.status, problem.field) == (status, field)


def test_a_field_deep_inside_is_named_by_its_whole_path() -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(b'{"jobs": [{"queue": "q", "task": "t", "retry": {"speed": 1}}]}', type=NewJobs)
    assert problem_of_shape(raised.value).field == "jobs[0].retry.speed"
