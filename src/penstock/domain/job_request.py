"""What a caller asks for when enqueueing, and what makes it a draft: checked, with digests of its keys."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import PRIORITY_DEFAULT, PRIORITY_MAX, JobDraft, Lane, OnDuplicate, StartRate
from penstock.domain.job_errors import JobInvalid, JobTooLarge
from penstock.domain.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.job_limits import JobLimits

DIGEST_BYTES = 32
_QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job as somebody asks for it; nothing is checked yet."""

    task: str
    payload: bytes = b"null"
    """JSON text."""
    delay_ms: int = 0
    run_at_ms: int | None = None
    expires_in_ms: int | None = None
    retention_ms: int | None = None
    priority: int = PRIORITY_DEFAULT
    tenant: str = ""
    group: str | None = None
    concurrency_key: str | None = None
    concurrency_width: int = 1
    timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    unique_key: str | None = None
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    start_rate: StartRate | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None
    correlation_id: str = ""
    idempotency_key: str | None = None
    id: str | None = None
    """Chosen by the caller, so that a repeat finds the first one's job; None: one is made."""


_FIRST_FIELDS = (
    *("task", "payload", "delay_ms", "run_at_ms", "priority", "tenant", "group", "concurrency_key"),
    *("concurrency_width", "timeout_ms", "retry", "unique_key", "tags", "trace", "correlation_id", "idempotency_key"),
)
"""The fields that fingerprints had from the beginning, in their order. A later field counts only where it is given."""
_LATER_FIELDS = {
    field.name: field.default for field in msgspec.structs.fields(JobRequest) if field.name not in _FIRST_FIELDS
}


def check_queue_name(name: str, limits: JobLimits) -> None:
    """Raise `JobInvalid` unless a queue may have this name."""
    if not _QUEUE_NAME.fullmatch(name) or len(name) > limits.name_length_max:
        raise JobInvalid(
            f"A queue's name is 1 to {limits.name_length_max} letters, digits and ._:-, and begins with one of the "
            "first two.",
            "queue",
        )


def check_name(field: str, text: str, limits: JobLimits) -> None:
    """Raise `JobInvalid` unless `text` can be the name of something: printable, neither empty nor too long."""
    if not 1 <= len(text) <= limits.name_length_max or not text.isprintable():
        raise JobInvalid(f"{field} is 1 to {limits.name_length_max} printable characters.", field)


def check_job_id(text: str) -> None:
    """Raise `JobInvalid` unless `text` is a UUID in its canonical form, which is all that a lease token can hold."""
    if not _JOB_ID.fullmatch(text):
        raise JobInvalid("id is a UUID in canonical form: lower-case hexadecimal digits, with hyphens.", "id")


def check_range(field: str, value: int, low: int, high: int) -> None:
    """Raise `JobInvalid` unless `value` is from `low` to `high`."""
    if not low <= value <= high:
        raise JobInvalid(f"{field} is a whole number from {low} to {high}, and not {value}.", field)


def check_tasks(tasks: Sequence[str], limits: JobLimits) -> tuple[str, ...]:
    """Return the tasks that a worker takes, each once and in one order, or raise `JobInvalid`."""
    if len(tasks) > limits.tasks_max:
        raise JobInvalid(f"A worker names at most {limits.tasks_max} tasks.", "tasks")
    for task in tasks:
        check_name("tasks", task, limits)
    return tuple(sorted(set(tasks)))


def check_size(field: str, size_bytes: int, bytes_max: int) -> None:
    """Raise `JobTooLarge` if something has more bytes than it may."""
    if size_bytes > bytes_max:
        raise JobTooLarge(f"{field} has {size_bytes} bytes, and {bytes_max} at most are allowed.", field)


def make_draft(
    request: JobRequest, *, queue: str, job_id: str, now_ms: int, limits: JobLimits, derive_key: bool = False
) -> JobDraft:
    """Check a request and make it a draft, or raise `JobInvalid`. Its id is `job_id` unless the caller chose one.

    `derive_key` takes task, payload and tenant for the idempotency key where the caller gives none.
    """
    _check(request, now_ms, limits)
    key, fingerprint = _digests(request, queue, derive_key=derive_key)
    return JobDraft(
        id=request.id or job_id,
        task=request.task,
        payload=request.payload,
        run_at_ms=request.run_at_ms,
        delay_ms=request.delay_ms,
        expires_in_ms=request.expires_in_ms,
        retention_ms=request.retention_ms,
        priority=request.priority,
        tenant=request.tenant,
        lane=_lane(request),
        timeout_ms=request.timeout_ms,
        retry=request.retry,
        unique_key=request.unique_key,
        on_duplicate=request.on_duplicate,
        start_rate=request.start_rate,
        tags=tuple(sorted(set(request.tags))),
        # Who traces badly shall not be refused work for it.
        trace=request.trace if request.trace and _TRACEPARENT.fullmatch(request.trace) else None,
        correlation_id=request.correlation_id,
        idempotency_key=key,
        fingerprint=fingerprint,
        chosen=request.id is not None,
    )


def _check_combinations(request: JobRequest) -> None:
    if request.group is not None and request.concurrency_key is not None:
        raise JobInvalid("A job has either a group or a concurrency key.", "group")
    if request.on_duplicate is OnDuplicate.REPLACE and request.unique_key is None:
        raise JobInvalid("Only a job with a unique key can replace another.", "on_duplicate")
    if request.run_at_ms is not None and request.delay_ms:
        raise JobInvalid("A job has either a delay or an instant at which it runs.", "run_at_ms")


def _check(request: JobRequest, now_ms: int, limits: JobLimits) -> None:
    check_name("task", request.task, limits)
    if request.id is not None:
        check_job_id(request.id)
    for field, text in (
        ("tenant", request.tenant or None),
        ("group", request.group),
        ("concurrency.key", request.concurrency_key),
        ("unique_key", request.unique_key),
        ("idempotency_key", request.idempotency_key),
        ("correlation_id", request.correlation_id or None),
    ):
        if text is not None:
            check_name(field, text, limits)
    _check_combinations(request)
    check_size("payload", len(request.payload), limits.payload_bytes_max)
    check_range("delay_ms", request.delay_ms, 0, limits.delay_ms_max)
    check_range("priority", request.priority, 0, PRIORITY_MAX)
    check_range("concurrency.width", request.concurrency_width, 1, limits.lane_width_max)
    if request.start_rate is not None:
        _check_start_rate(request.start_rate, limits)
    for field, value, low, high in (
        ("run_at_ms", request.run_at_ms, 0, now_ms + limits.delay_ms_max),
        ("timeout_ms", request.timeout_ms, 1, limits.delay_ms_max),
        ("expires_in_ms", request.expires_in_ms, 1, limits.delay_ms_max),
        ("retention_ms", request.retention_ms, 0, limits.delay_ms_max),
    ):
        if value is not None:
            check_range(field, value, low, high)
    _check_expiry(request, now_ms)
    if len(request.tags) > limits.tags_max:
        raise JobInvalid(f"A job has at most {limits.tags_max} tags.", "tags")
    for tag in request.tags:
        check_name("tags", tag, limits)


def _check_expiry(request: JobRequest, now_ms: int) -> None:
    due_in_ms = request.delay_ms if request.run_at_ms is None else request.run_at_ms - now_ms
    if request.expires_in_ms is not None and request.expires_in_ms <= due_in_ms:
        raise JobInvalid(
            f"expires_in_ms is {request.expires_in_ms}, but the job is not due before {due_in_ms} ms: it would expire "
            "without a chance to start.",
            "expires_in_ms",
        )


def _check_start_rate(rate: StartRate, limits: JobLimits) -> None:
    check_name("start_rate.key", rate.key, limits)
    check_range("start_rate.burst", rate.burst, 1, limits.start_burst_max)
    if not limits.start_per_second_min <= rate.per_second <= limits.start_per_second_max:
        raise JobInvalid(
            f"start_rate.per_second is from {limits.start_per_second_min:g} to {limits.start_per_second_max:g}.",
            "start_rate.per_second",
        )


def _lane(request: JobRequest) -> Lane | None:
    if request.group is not None:
        return Lane(key=request.group, ordered=True)
    if request.concurrency_key is not None:
        return Lane(key=request.concurrency_key, width=request.concurrency_width)
    return None


def _digests(request: JobRequest, queue: str, *, derive_key: bool) -> tuple[bytes | None, bytes]:
    """Digest the key, with its tenant, and everything that was asked for; both are empty where there is no key."""
    if request.idempotency_key is None and not derive_key:
        return None, b""
    canonical = canonical_json(request.payload)
    if request.idempotency_key is None:
        key = digest(b"derived", request.tenant.encode(), request.task.encode(), canonical)
    else:
        key = digest(b"given", request.tenant.encode(), request.idempotency_key.encode())
    return key, digest(queue.encode(), canonical, msgspec.json.encode(_asked(request)))


def _asked(request: JobRequest) -> dict[str, object]:
    """Return what a repeated request has to agree in, besides its queue and payload.

    A key is remembered across upgrades, so the digest of a request that uses no newer field must not change.
    """
    request = msgspec.structs.replace(request, payload=b"", trace=None, correlation_id="", id=None)
    asked = {name: getattr(request, name) for name in _FIRST_FIELDS}
    later = {name: getattr(request, name) for name in _LATER_FIELDS}
    return asked | {name: given for name, given in later.items() if given != _LATER_FIELDS[name]}


def digest_job(queue: str, task: str, tenant: str, payload: bytes) -> bytes:
    """Digest what a job is, to tell another one under the same id."""
    return digest(queue.encode(), task.encode(), tenant.encode(), canonical_json(payload))


def canonical_json(text: bytes) -> bytes:
    """Write JSON text in one way, so that neither the order of keys nor blanks make a difference."""
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
    except (ValueError, RecursionError):  # It is JSON, but with numbers or nesting beyond what Python can hold.
        return text


def digest(*parts: bytes) -> bytes:
    """Digest parts, so that no two lists of parts have the same digest."""
    made = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        made.update(len(part).to_bytes(8))
        made.update(part)
    return made.digest()
