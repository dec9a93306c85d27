"""What clients of the job API send: jobs, dequeues, reports, queues, schedules. Instants are ms since the epoch."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.domain import job as domain
from penstock.domain.job import PRIORITY_DEFAULT, PRIORITY_MAX, Failure, OnDuplicate
from penstock.domain.job_queue import BreakerPolicy, JobQueueSettings, LaneSettings, Rate, StartRateSettings
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import DAY_MS, HOUR_MS, SECOND_MS
from penstock.domain.retry import RetryPolicy

LENGTH_MAX = 200
YEAR_MS = 365 * DAY_MS
INSTANT_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""
COUNT_MAX = 2**31 - 1

QueueName = Annotated[str, Meta(min_length=1, max_length=LENGTH_MAX, pattern="^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
Name = Annotated[str, Meta(min_length=1, max_length=LENGTH_MAX)]
JobId = Annotated[str, Meta(pattern="^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
CorrelationId = Annotated[str, Meta(min_length=1, max_length=LENGTH_MAX, pattern="^[!-~]*$")]
MaybeEmptyName = Annotated[str, Meta(max_length=LENGTH_MAX)]
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Wait = Annotated[int, Meta(ge=0, le=YEAR_MS)]
PerSecond = Annotated[float, Meta(ge=0.000_01, le=1_000_000)]
Burst = Annotated[int, Meta(ge=1, le=1_000_000)]
Instant = Annotated[int, Meta(ge=0, le=INSTANT_MS_MAX)]


def _null() -> Raw:
    return Raw(b"null")


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A retry policy: how many attempts may fail or be lost, and the wait between them."""

    attempts_max: Annotated[int, Meta(ge=1, le=1_000)] = 10
    losses_max: Annotated[int, Meta(ge=0, le=1_000)] = 5
    backoff_ms: Wait = SECOND_MS
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    backoff_ms_max: Wait = HOUR_MS
    jitter: bool = True

    def policy(self) -> RetryPolicy:
        """Make it the domain's."""
        return RetryPolicy(**msgspec.structs.asdict(self))


class Concurrency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of all jobs of a queue and a tenant with this key, `width` run at once.

    The queue's `lanes` come first; otherwise `width` counts while no unfinished job has the key.
    """

    key: Name
    width: Annotated[int, Meta(ge=1, le=10_000)] = 1


class StartRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of all jobs of a queue and a tenant with this key, `per_second` start in a second, and `burst` after a pause.

    The queue's `start_rates` come first; otherwise the rate counts while the key is new: when no job with it has
    started for an hour.
    """

    key: Name
    per_second: PerSecond
    burst: Burst = 1


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done, and how: everything about a job but its queue and when it runs."""

    task: Name
    payload: Raw = msgspec.field(default_factory=_null)
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT
    tenant: MaybeEmptyName = ""
    group: Name | None = None
    concurrency: Concurrency | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] | None = None
    expires_in_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] | None = None
    retention_ms: Wait | None = None
    retry: Retry | None = None
    unique_key: Name | None = None
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    start_rate: StartRate | None = None
    tags: Annotated[list[Name], Meta(max_length=20)] = []


class NewJob(Job, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to be enqueued. Sent again with the same `id`, a UUID of your choice, it is not enqueued again.

    `idempotency_key`, `traceparent` and `correlation_id` are for batches and gathers; a single job may have them in
    headers instead. What a job has itself goes before the request's headers.
    """

    id: JobId | None = None
    queue: QueueName
    delay_ms: Wait = 0
    run_at_ms: Instant | None = None
    idempotency_key: Name | None = None
    traceparent: str | None = None
    correlation_id: CorrelationId | None = None


class NewJobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to be enqueued, each judged by itself."""

    jobs: Annotated[list[NewJob], Meta(min_length=1, max_length=500)]


class JobTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`NewJobs` before its entries are read, so that each is judged by itself."""

    jobs: Annotated[list[Raw], Meta(min_length=1, max_length=500)]


class LooseJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job in its simplest form: a payload, with a queue and a task that have defaults."""

    payload: Raw = msgspec.field(default_factory=_null)
    queue: QueueName = "default"
    task: Name = "default"
    delay_ms: Wait = 0
    tenant: MaybeEmptyName = ""
    id: JobId | None = None


class Dequeue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker wants: up to `count` jobs at once, of these queues, waiting up to `wait_ms` for the first.

    With `tasks` only jobs of these tasks are offered. On a stream `count` is the credit: how many jobs the worker may
    have at the same time. If the answer was lost or the stream broke, the same request with the same `request_id` is
    first offered what is left of the first one's offers.
    """

    queues: Annotated[list[QueueName], Meta(min_length=1, max_length=16)]
    worker: MaybeEmptyName = ""
    count: Annotated[int, Meta(ge=1, le=500)] = 1
    wait_ms: Annotated[int, Meta(ge=0, le=60 * SECOND_MS)] = 0
    tasks: Annotated[list[Name], Meta(min_length=1, max_length=500)] = []
    request_id: Name | None = None


class Credit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much more credit, or with a negative number less, a stream is to have from now on.

    With a `request_id`, once, however often it is sent.
    """

    add: Annotated[int, Meta(ge=-500, le=500)]
    request_id: Name | None = None


class Intervention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cancellation or a retry. With a `request_id` it takes effect once, however often it is sent."""

    request_id: Name | None = None


# -- reports --------------------------------------------------------------------------------------


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an attempt came to."""

    result: Raw = msgspec.field(default_factory=_null)


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why an attempt failed. `kind` is what failures are grouped by, such as the exception's class."""

    kind: Name
    message: str = ""
    details: str = ""
    permanent: bool = False
    retry_after_ms: Wait | None = None

    def failure(self) -> Failure:
        """Make it the domain's."""
        return Failure(
            kind=self.kind,
            message=self.message,
            details=self.details,
            permanent=self.permanent,
            retry_after_ms=self.retry_after_ms,
        )


class Delay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how long a job is put off."""

    delay_ms: Annotated[int, Meta(ge=0, le=YEAR_MS)]


class _Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    token: str


class AcceptReport(_Report, frozen=True, kw_only=True, tag="accept"):
    """The worker begins."""


class HeartbeatReport(_Report, frozen=True, kw_only=True, tag="heartbeat"):
    """The worker is alive."""


class CompleteReport(_Report, frozen=True, kw_only=True, tag="complete"):
    """The attempt succeeded."""

    result: Raw = msgspec.field(default_factory=_null)


class FailReport(_Report, frozen=True, kw_only=True, tag="fail"):
    """The attempt failed."""

    failure: Fault


class ReleaseReport(_Report, frozen=True, kw_only=True, tag="release"):
    """The worker gives the job back."""


class SnoozeReport(_Report, frozen=True, kw_only=True, tag="snooze"):
    """The worker puts the job off."""

    delay_ms: Annotated[int, Meta(ge=0, le=YEAR_MS)]


class ReportEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several events that are published together. The same `id` again is the same event."""

    kind: Name
    data: Raw = msgspec.field(default_factory=_null)
    id: Name | None = None


class PublishReport(_Report, frozen=True, kw_only=True, tag="publish"):
    """The worker publishes events, all of them or none."""

    events: Annotated[list[ReportEvent], Meta(min_length=1, max_length=1_000)]


StateReport = AcceptReport | HeartbeatReport | CompleteReport | FailReport | ReleaseReport | SnoozeReport
AnyReport = StateReport | PublishReport


class Reports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reports, each taken in its own right."""

    reports: Annotated[list[AnyReport], Meta(min_length=1, max_length=500)]


class ReportTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`Reports` before its entries are read, so that each is judged by itself."""

    reports: Annotated[list[Raw], Meta(min_length=1, max_length=500)]


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event of a running job. The same `id` again is the same event, told again.

    `request_id` means the same as `id`; give one of them.
    """

    token: str
    kind: Name
    data: Raw = msgspec.field(default_factory=_null)
    id: Name | None = None
    request_id: Name | None = None


# -- queues ---------------------------------------------------------------------------------------


class Bucket(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rate: `per_second` on average, and `burst` at once after a pause. The slowest is about one a day."""

    per_second: PerSecond
    burst: Burst


class Breaker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """After so many failures in a row nothing is offered for `open_ms`, and then so many probes."""

    failures_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 5
    open_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] = 30 * SECOND_MS
    probes: Annotated[int, Meta(ge=1, le=1_000)] = 1


class LaneSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many jobs with a concurrency key run at once: of each tenant, or `shared`, of all tenants together."""

    width: Annotated[int, Meta(ge=1, le=10_000)]
    shared: bool = False


class StartRateSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many jobs with a key start in a second: of each tenant, or `shared`, of all tenants together."""

    per_second: PerSecond
    burst: Burst = 1
    shared: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a queue; what is left out keeps its value, or in a new queue has the default."""

    depth_max: Count | UnsetType = UNSET
    rate: Bucket | UnsetType | None = UNSET
    rate_per_tenant: Bucket | UnsetType | None = UNSET
    retry: Retry | UnsetType = UNSET
    breaker: Breaker | UnsetType | None = UNSET
    lanes: Annotated[dict[Name, LaneSetting], Meta(max_length=100)] | UnsetType = UNSET
    start_rates: Annotated[dict[Name, StartRateSetting], Meta(max_length=100)] | UnsetType = UNSET
    aging_ms: Annotated[int, Meta(ge=0, le=DAY_MS)] | UnsetType = UNSET
    offer_ms: Annotated[int, Meta(ge=100, le=HOUR_MS)] | UnsetType = UNSET
    lease_ms: Annotated[int, Meta(ge=1_000, le=DAY_MS)] | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] | UnsetType = UNSET
    derive_keys: bool | UnsetType = UNSET
    key_ttl_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    retention_ms: Wait | UnsetType = UNSET
    dead_retention_ms: Wait | UnsetType = UNSET
    events_max: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET

    def over(self, settings: JobQueueSettings) -> JobQueueSettings:
        """Put these settings over others."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}
        for name, kind in (
            ("rate", Rate),
            ("rate_per_tenant", Rate),
            ("retry", RetryPolicy),
            ("breaker", BreakerPolicy),
        ):
            if given.get(name) is not None:
                given[name] = kind(**msgspec.structs.asdict(given[name]))
        if "lanes" in given:
            given["lanes"] = {
                key: LaneSettings(width=lane.width, shared=lane.shared) for key, lane in given["lanes"].items()
            }
        if "start_rates" in given:
            given["start_rates"] = {
                key: StartRateSettings(**msgspec.structs.asdict(rate)) for key, rate in given["start_rates"].items()
            }
        return msgspec.structs.replace(settings, **given)


class NewQueue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to be made."""

    name: QueueName
    settings: Settings = Settings()


class QueueChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New settings of a queue; with `revision`, only if nobody has changed it since."""

    settings: Settings
    revision: Count | None = None


class QueuePatch(QueueChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New values of some settings of a queue. With a `request_id` they are set once, however often this is sent."""

    request_id: Name | None = None


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs of a queue are meant, how many of them a second, and whether they are only to be counted.

    The same selection again with the same `request_id` is the same operation.
    """

    task: Name | None = None
    tenant: MaybeEmptyName | None = None
    tag: Name | None = None
    failure_kind: Name | None = None
    enqueued_from_ms: Instant | None = None
    enqueued_before_ms: Instant | None = None
    rate: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    dry_run: bool = False
    request_id: Name | None = None


class LooseRequeue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead jobs to queue again: one, or all of a queue, or its oldest up to `limit`.

    The same again with the same `request_id` takes effect once.
    """

    id: str | None = None
    queue: QueueName = "default"
    limit: Count | None = None
    request_id: Name | None = None


# -- schedules ------------------------------------------------------------------------------------


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to enqueue a job: by a cron expression in a time zone, or by an interval."""

    queue: QueueName
    job: Job
    cron: Name | None = None
    zone: Name = "UTC"
    interval_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] | None = None
    paused: bool = False


class NewSchedule(ScheduleChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule and its name."""

    name: QueueName


def job_request(job: Job | LooseJob, *, trace: str | None = None, correlation_id: str = "") -> JobRequest:
    """Make what came over the wire a request of the domain.

    `trace` and `correlation_id` are those of the request, for a job that has none of its own.
    """
    if isinstance(job, LooseJob):
        return JobRequest(
            task=job.task,
            payload=bytes(job.payload),
            delay_ms=job.delay_ms,
            tenant=job.tenant,
            trace=trace,
            correlation_id=correlation_id,
            id=job.id,
        )
    concurrency, rate = job.concurrency, job.start_rate
    new = job if isinstance(job, NewJob) else None
    return JobRequest(
        task=job.task,
        payload=bytes(job.payload),
        delay_ms=0 if new is None else new.delay_ms,
        run_at_ms=None if new is None else new.run_at_ms,
        priority=job.priority,
        tenant=job.tenant,
        group=job.group,
        concurrency_key=None if concurrency is None else concurrency.key,
        concurrency_width=1 if concurrency is None else concurrency.width,
        timeout_ms=job.timeout_ms,
        expires_in_ms=job.expires_in_ms,
        retention_ms=job.retention_ms,
        retry=None if job.retry is None else job.retry.policy(),
        unique_key=job.unique_key,
        on_duplicate=job.on_duplicate,
        start_rate=None
        if rate is None
        else domain.StartRate(key=rate.key, per_second=rate.per_second, burst=rate.burst),
        tags=tuple(job.tags),
        trace=trace if new is None or new.traceparent is None else new.traceparent,
        correlation_id=correlation_id if new is None or new.correlation_id is None else new.correlation_id,
        idempotency_key=None if new is None else new.idempotency_key,
        id=None if new is None else new.id,
    )
