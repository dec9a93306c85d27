"""Requests that users' transactions have staged: texts in the form of `POST /v1/jobs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job_errors import JobInvalid
from penstock.wire.jobs.problems import problem_of_shape
from penstock.wire.jobs.shapes import NewJob, job_request

if TYPE_CHECKING:
    from penstock.domain.job_request import JobRequest

_decode = msgspec.json.Decoder(NewJob).decode


def read_staged(text: str, job_id: str) -> JobRequest:
    """Read a staged job, whose id may have been chosen for it; raises `JobInvalid` if it is none."""
    try:
        job = _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = problem_of_shape(error)
        raise JobInvalid(problem.detail, problem.field) from None
    return job_request(msgspec.structs.replace(job, id=job_id))
