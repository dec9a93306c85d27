"""What callers hand to the client: jobs, their options, and settings of queues, by the names of the job API."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

OnDuplicate = Literal["keep", "replace"]
OnError = Literal["fail", "collect"]


class RetrySettings(TypedDict, total=False):
    """When a failed attempt is followed by another; it replaces the queue's policy as a whole."""

    attempts_max: int
    losses_max: int
    backoff_ms: int
    factor: float
    backoff_ms_max: int
    jitter: bool


class Concurrency(TypedDict):
    """Of all jobs with this key, `width` run at once."""

    key: str
    width: NotRequired[int]


class StartRate(TypedDict):
    """Of all jobs with this key, at most `per_second` start in a second."""

    key: str
    per_second: float
    burst: NotRequired[int]


class ScheduledJob(TypedDict, total=False):
    """How a job is run: everything about it but its queue, its task, its payload and when."""

    priority: int
    tenant: str
    group: str
    concurrency: Concurrency
    start_rate: StartRate
    timeout_ms: int
    expires_in_ms: int
    retention_ms: int
    retry: RetrySettings
    unique_key: str
    on_duplicate: OnDuplicate
    tags: list[str]


class JobOptions(ScheduledJob, total=False):
    """Everything about a job but its queue, its task and its payload; docs/jobs-api.md says what each field means."""

    id: str
    delay_ms: int
    run_at_ms: int
    idempotency_key: str
    traceparent: str
    correlation_id: str


class NewJob(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job to enqueue. The payload is any value that msgspec can write as JSON.

    An `id` that is left out is made when the job is enqueued, so the same `NewJob` can be enqueued many times.
    """

    queue: str
    task: str
    payload: Any = None
    id: str | UnsetType = UNSET
    delay_ms: int | UnsetType = UNSET
    run_at_ms: int | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    concurrency: Concurrency | UnsetType = UNSET
    start_rate: StartRate | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    expires_in_ms: int | UnsetType = UNSET
    retention_ms: int | UnsetType = UNSET
    retry: RetrySettings | UnsetType = UNSET
    unique_key: str | UnsetType = UNSET
    on_duplicate: OnDuplicate | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET
    correlation_id: str | UnsetType = UNSET


class Continuation(NewJob, kw_only=True, omit_defaults=True):
    """A job that runs after others, and the one that runs after it. Up to 50 follow each other."""

    then: NewJob | UnsetType = UNSET


class Rate(TypedDict):
    """A token bucket."""

    per_second: float
    burst: int


class Breaker(TypedDict, total=False):
    """When to stop offering jobs because what they need is down."""

    failures_max: int
    open_ms: int
    probes: int


class Lane(TypedDict):
    """How many jobs with a concurrency key run at once."""

    width: int
    shared: NotRequired[bool]


class KeyRate(TypedDict):
    """How many jobs with a start-rate key start in a second."""

    per_second: float
    burst: NotRequired[int]
    shared: NotRequired[bool]


class QueueSettings(TypedDict, total=False):
    """Settings of a queue; docs/jobs.md says what each one means."""

    depth_max: int
    rate: Rate | None
    rate_per_tenant: Rate | None
    retry: RetrySettings
    breaker: Breaker | None
    lanes: dict[str, Lane]
    aging_ms: int
    start_rates: dict[str, KeyRate]
    offer_ms: int
    lease_ms: int
    timeout_ms: int
    derive_keys: bool
    key_ttl_ms: int
    strict: bool
    retention_ms: int
    dead_retention_ms: int
    events_max: int


class JobFilter(TypedDict, total=False):
    """Which jobs are meant."""

    task: str
    tenant: str
    tag: str
    failure_kind: str
    enqueued_from_ms: int
    enqueued_before_ms: int


class ReportEvent(TypedDict):
    """An event that is published by a report. An `id` that is left out is made before the report is sent."""

    kind: str
    data: NotRequired[Any]
    id: NotRequired[str]


class Report(TypedDict, total=False):
    """One of several reports: `do` is the verb, and the rest is what that verb takes."""

    do: Literal["accept", "heartbeat", "complete", "fail", "release", "snooze", "publish"]
    token: str
    result: Any
    failure: dict[str, Any]
    delay_ms: int
    events: list[ReportEvent]


def value_of(raw: msgspec.Raw | UnsetType, kind: Any = Any) -> Any:  # noqa: ANN401 - any JSON, as the caller wants it
    """Return a payload, a result or the data of an event as Python values, or as `kind`, which msgspec must know."""
    return None if isinstance(raw, UnsetType) else msgspec.json.decode(raw, type=kind)
