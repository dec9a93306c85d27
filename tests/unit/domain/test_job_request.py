"""What identifies a job and a call: digests that later versions have to agree with."""

from __future__ import annotations

import msgspec
import pytest

from penstock.domain.job_errors import JobInvalid
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


def test_fields_of_later_versions_are_part_of_the_fingerprint_where_they_are_given() -> None:
    given = [msgspec.structs.replace(REQUEST, **{name: 7}) for name in ("expires_in_ms", "retention_ms")]
    assert len({fingerprint(request) for request in (REQUEST, *given)}) == 3


def test_who_traces_a_request_is_no_part_of_its_fingerprint() -> None:
    traced = msgspec.structs.replace(REQUEST, trace=f"00-{1:032x}-{1:016x}-01", correlation_id="another")
    assert fingerprint(traced) == fingerprint(REQUEST)


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_in_ms": 0},
        {"expires_in_ms": JobLimits().delay_ms_max + 1},
        {"expires_in_ms": 1_000, "delay_ms": 1_000},
        {"expires_in_ms": 1_000, "run_at_ms": 51_000},
        {"retention_ms": -1},
        {"retention_ms": JobLimits().delay_ms_max + 1},
    ],
)
def test_a_time_that_makes_no_sense_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(JobInvalid) as refused:
        make_draft(JobRequest(task="t", **fields), queue="q", job_id="j", now_ms=50_000, limits=JobLimits())  # type: ignore[arg-type]
    assert refused.value.field == next(iter(fields))


@pytest.mark.parametrize("fields", [{"delay_ms": 999}, {"run_at_ms": 50_999}, {"run_at_ms": 1}])
def test_a_job_may_expire_right_after_it_is_due(fields: dict[str, int]) -> None:
    request = JobRequest(task="t", expires_in_ms=1_000, **fields)  # type: ignore[arg-type]
    draft = make_draft(request, queue="q", job_id="j", now_ms=50_000, limits=JobLimits())
    assert draft.expires_in_ms == 1_000


@pytest.mark.parametrize("other", [("q", "t", "", b"1"), ("mail", "x", "", b"1"), ("mail", "t", "a", b"1")])
def test_jobs_differ_by_queue_task_tenant_and_payload(other: tuple[str, str, str, bytes]) -> None:
    assert digest_job(*other) != digest_job("mail", "t", "", b"1") != digest_job("mail", "t", "", b"2")
    assert digest_job("mail", "t", "", b'{"a": 1, "b": 2}') == digest_job("mail", "t", "", b'{"b":2,"a":1}')


def test_calls_differ_in_each_of_their_parts() -> None:
    keys = {call_key(*parts) for parts in (("a", "b"), ("ab",), ("a", "b", ""), ("b", "a"), ("a", "\ud800"))}
    assert len(keys) == 5
    assert all(0 <= turn_of(key) < 2**63 for key in keys)
    assert len({turn_of(key) for key in keys}) == len({operation_id_of(key) for key in keys}) == 5
