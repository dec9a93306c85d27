"""What identifies a job and a call: digests that later versions have to agree with."""

from __future__ import annotations

import msgspec
import pytest

from penstock.domain.job_limits import JobLimits
from penstock.domain.job_request import JobRequest, digest_job, make_draft
from penstock.domain.repeats import call_key, operation_id_of, turn_of
from penstock.domain.retry import RetryPolicy

REQUEST = JobRequest(
    task="t",
    payload=b'{"b": 1, "a": 2}',
    priority=7,
    tags=("x",),
    tenant="acme",
    retry=RetryPolicy(attempts_max=3),
    idempotency_key="k",
    trace="00",
    correlation_id="c",
    unique_key="u",
)


def fingerprint(request: JobRequest) -> str:
    draft = make_draft(request, queue="mail", job_id="made", now_ms=0, limits=JobLimits())
    return draft.fingerprint.hex()


def test_a_key_that_an_older_version_remembers_stands_for_the_same_request() -> None:
    # Digested before requests had an id.
    assert fingerprint(REQUEST) == "b4ccee6516a45aed43d1ed6c881c23809c8c7c2e552536500262ef1e0bd40e52"


def test_an_id_is_no_part_of_the_fingerprint() -> None:
    chosen = msgspec.structs.replace(REQUEST, id="00000000-0000-0000-0000-000000000011")
    assert fingerprint(chosen) == fingerprint(REQUEST)


@pytest.mark.parametrize("other", [("q", "t", "", b"1"), ("mail", "x", "", b"1"), ("mail", "t", "a", b"1")])
def test_jobs_differ_by_queue_task_tenant_and_payload(other: tuple[str, str, str, bytes]) -> None:
    assert digest_job(*other) != digest_job("mail", "t", "", b"1") != digest_job("mail", "t", "", b"2")
    assert digest_job("mail", "t", "", b'{"a": 1, "b": 2}') == digest_job("mail", "t", "", b'{"b":2,"a":1}')


def test_calls_differ_in_each_of_their_parts() -> None:
    keys = {call_key(*parts) for parts in (("a", "b"), ("ab",), ("a", "b", ""), ("b", "a"), ("a", "\ud800"))}
    assert len(keys) == 5
    assert all(0 <= turn_of(key) < 2**63 for key in keys)
    assert len({turn_of(key) for key in keys}) == len({operation_id_of(key) for key in keys}) == 5
