"""Jobs as the tables keep them: rows to values, and the record of a job that a transaction works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import (
    TERMINAL,
    Attempt,
    AttemptOutcome,
    Failure,
    Job,
    JobState,
    Lane,
    Lease,
    Membership,
    Offer,
    StartRate,
)
from penstock.domain.retry import RetryPolicy
from penstock.store.jobs.settings import decode_settings

if TYPE_CHECKING:
    from penstock.domain.job_queue import JobQueueSettings
    from penstock.store.jobs.script import Row


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a job was enqueued with that no statement looks for; kept in one column."""

    timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    lane: Lane | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None
    correlation_id: str = ""
    start_rate: StartRate | None = None
    gate: str | None = None
    """The name of the gate that it waits at because of its start rate."""
    member: Membership | None = None
    gathered: str | None = None


encode_options = msgspec.msgpack.Encoder().encode
decode_options = msgspec.msgpack.Decoder(JobOptions).decode
encode_failure = msgspec.msgpack.Encoder().encode
decode_failure = msgspec.msgpack.Decoder(Failure).decode


class JobRecord:
    """A job within one transaction, whose row is locked; what is changed here is written by `Changes.save`.

    Made from the columns that all statements under the heading *records* in jobs.sql have in common.
    """

    __slots__ = (
        "attempts",
        "cancel_requested",
        "due_at",
        "enqueued_at",
        "events",
        "expires_at",
        "failure_kind",
        "failures",
        "fence",
        "finished_at",
        "id",
        "in_lane",
        "lane_id",
        "losses",
        "options",
        "position",
        "priority",
        "queue",
        "queue_id",
        "rank",
        "ready",
        "retention_ms",
        "settings",
        "state",
        "task",
        "tenant",
        "times_out_at",
        "unique_key",
        "worker",
    )

    position: int
    id: str
    queue_id: int
    task: str
    tenant: str
    priority: int
    ready: int
    due_at: int | None
    lane_id: int | None
    in_lane: int
    fence: int
    attempts: int
    failures: int
    losses: int
    events: int
    times_out_at: int | None
    cancel_requested: int
    unique_key: str | None
    failure_kind: str | None
    worker: str
    enqueued_at: int
    finished_at: int | None
    expires_at: int | None
    """Only a job that has never started expires."""
    retention_ms: int | None
    queue: str

    def __init__(self, row: Row) -> None:
        (
            self.position,
            self.id,
            self.queue_id,
            self.task,
            self.tenant,
            self.priority,
            state,
            self.ready,
            self.due_at,
            self.lane_id,
            self.in_lane,
            self.fence,
            self.attempts,
            self.failures,
            self.losses,
            self.events,
            self.times_out_at,
            self.cancel_requested,
            self.unique_key,
            self.failure_kind,
            self.worker,
            self.enqueued_at,
            self.finished_at,
            self.expires_at,
            self.retention_ms,
            options,
            self.queue,
            settings,
        ) = row[:RECORD_COLUMNS]
        self.state = JobState(state)
        self.options = decode_options(options)
        self.settings = decode_settings(settings)
        self.rank: int | None = None
        """Its new place in line, if it came due in this transaction."""

    @property
    def retry(self) -> RetryPolicy:
        """The job's own policy, or its queue's."""
        return self.options.retry or self.settings.retry

    @property
    def timeout_ms(self) -> int:
        """The job's own, or its queue's."""
        return self.options.timeout_ms or self.settings.timeout_ms

    @property
    def expiry(self) -> int | None:
        """When it expires; None if it does not, or has started."""
        return None if self.attempts else self.expires_at

    def has_expired(self, now_ms: int) -> bool:
        """Whether it had to start before now, and has not."""
        return self.expires_at is not None and self.expires_at <= now_ms and not self.attempts

    @property
    def ordered(self) -> bool:
        """Whether it belongs to a lane that keeps its order."""
        return self.options.lane is not None and self.options.lane.ordered


def rank_of(priority: int, due_at_ms: int, settings: JobQueueSettings) -> int:
    """The place in line of a job that came due at this instant: the lowest goes first."""
    return due_at_ms - priority * settings.aging_ms


RECORD_COLUMNS = 28
"""How many columns a record has; a whole job has three more: payload, result and failure."""


def job_of(row: Row, history: tuple[Attempt, ...] = ()) -> Job:
    """Make a job of the columns of a record, and its payload, result and failure."""
    record = JobRecord(row)
    payload, result, failure = row[RECORD_COLUMNS:]
    if record.state is JobState.SUCCEEDED and result is None:
        result = NOTHING
    return Job(
        id=record.id,
        position=record.position,
        queue=record.queue,
        task=record.task,
        state=record.state,
        payload=payload,
        priority=record.priority,
        tenant=record.tenant,
        lane=record.options.lane,
        tags=record.options.tags,
        unique_key=record.unique_key,
        enqueued_at_ms=record.enqueued_at,
        due_at_ms=record.due_at,
        finished_at_ms=record.finished_at,
        attempts=record.attempts,
        failures=record.failures,
        losses=record.losses,
        timeout_ms=record.timeout_ms,
        retry=record.retry,
        cancel_requested=bool(record.cancel_requested),
        worker=record.worker,
        trace=record.options.trace,
        correlation_id=record.options.correlation_id,
        retention_ms=record.settings.retention_ms if record.retention_ms is None else record.retention_ms,
        expires_at_ms=None if record.state in TERMINAL else record.expiry,
        start_rate=record.options.start_rate,
        result=result,
        failure=None if failure is None else decode_failure(failure),
        history=history,
        member=record.options.member,
        gathered=record.options.gathered,
    )


NOTHING = b"null"
"""The result of most jobs; it is not kept."""


def attempt_of(row: Row) -> Attempt:
    """Make an attempt of: number, worker, started_at, ended_at, outcome, failure."""
    number, worker, started_at, ended_at, outcome, failure = row
    return Attempt(
        number=number,
        worker=worker,
        started_at_ms=started_at,
        outcome=AttemptOutcome(outcome),
        ended_at_ms=ended_at,
        failure=None if failure is None else decode_failure(failure),
    )


def offer_of(row: Row, queue: str, settings: JobQueueSettings, now_ms: int) -> Offer:
    """Make an offer of what the statement `taken_before` returns, and `take` before its last column."""
    (
        _,
        job_id,
        task,
        tenant,
        priority,
        enqueued_at,
        fence,
        attempts,
        failures,
        losses,
        _,
        payload,
        options_column,
        accept_by_ms,
    ) = row
    options = decode_options(options_column)
    timeout_ms = options.timeout_ms or settings.timeout_ms
    return Offer(
        lease=Lease(job_id, attempts + 1, fence),
        queue=queue,
        task=task,
        payload=payload,
        tenant=tenant,
        priority=priority,
        tags=options.tags,
        enqueued_at_ms=enqueued_at,
        accept_by_ms=accept_by_ms,
        accept_in_ms=accept_by_ms - now_ms,
        lease_ms=min(settings.lease_ms, timeout_ms),
        timeout_ms=timeout_ms,
        failures=failures,
        losses=losses,
        trace=options.trace,
        correlation_id=options.correlation_id,
        member=options.member,
        gathered=options.gathered,
    )


def lane_of(row: Row) -> Lane | None:
    """Find the lane in what the statement `take` returns."""
    return None if row[10] is None else decode_options(row[12]).lane
