"""Each problem of the API is an exception of its own."""

from __future__ import annotations

import pickle

from penstock import errors
from penstock.wire.jobs import problems
from penstock.wire.jobs.answers import Problem


def test_every_problem_of_the_api_has_a_class() -> None:
    assert {kind.name for kind in problems.kinds()} == set(errors.PROBLEM_ERRORS)
    assert errors.PREFIX == problems.PREFIX


def test_every_class_has_a_problem_of_its_own() -> None:
    classes = list(errors.PROBLEM_ERRORS.values())
    assert len(set(classes)) == len(classes)
    assert set(classes) == set(errors.ProblemError.__subclasses__())


def test_an_unknown_problem_is_raised_as_such() -> None:
    problem = Problem(type="urn:penstock:problem:brand-new", title="New", status=418, retry_after_ms=1_500)
    error = errors.error_of(problem)
    assert type(error) is errors.ProblemError
    assert (str(error), error.status, error.retry_after) == ("New", 418, 1.5)


def test_a_problem_can_be_handed_to_another_process() -> None:
    error = errors.error_of(Problem(type="urn:penstock:problem:job-not-found", title="t", status=404, detail="d"))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.JobNotFound
    assert (str(again), again.status) == ("d", 404)
