"""What the job API answers: jobs, offers, reports, events, queues, operations, schedules."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penstock.domain.job import PRIORITY_DEFAULT, Failure, JobState, StartRate
from penstock.domain.job_queue import JobQueueSettings
from penstock.domain.retry import RetryPolicy

State = Literal["scheduled", "queued", "offered", "running", "retrying", "succeeded", "dead", "cancelled"]
STATES: dict[str, JobState] = {state.label: state for state in JobState}
_LABELS = {state: state.label for state in JobState}


def label(state: JobState) -> State:
    """Return a state's name, as users see it."""
    return _LABELS[state]  # type: ignore[return-value] # A test closes the list of names.


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What went wrong (RFC 9457). Programs read `type`, which never changes; people read the rest."""

    type: str
    title: str
    status: int
    detail: str = ""
    field: str = ""
    """The part of the request that is wrong, as `jobs[3].task`."""
    reason: str = ""
    """Of what there is too much: `queue_full`, `rate_global` or `rate_tenant`."""
    retry_after_ms: int | None = None


class Accepted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a job that was to be enqueued."""

    id: str
    queue: str
    state: State
    replayed: bool = False
    """The job was there already: it has the id that you chose, or the idempotency key stood for it."""
    duplicate: bool = False
    """An unfinished job had the unique key already: this one."""
    replaced: str | None = None
    """The id of the waiting job that had the unique key, and was cancelled for this one."""
    result: Raw | UnsetType = UNSET
    """Of a job that was replayed and has succeeded."""


class BatchEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one of several: a status as it would have by itself, with a job or a problem."""

    status: int
    job: Accepted | None = None
    problem: Problem | None = None


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each, in order."""

    results: list[BatchEntry]


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a job."""

    number: int
    worker: str
    outcome: str
    started_at_ms: int
    ended_at_ms: int | None
    failure: Failure | None


class MembershipView(msgspec.Struct, frozen=True, kw_only=True):
    """The gather that a job is a member of, and its index there."""

    id: str
    index: int


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list."""

    id: str
    queue: str
    task: str
    state: State
    priority: int
    tenant: str
    group: str | None
    concurrency_key: str | None
    tags: tuple[str, ...]
    unique_key: str | None
    enqueued_at_ms: int
    due_at_ms: int | None
    finished_at_ms: int | None
    expires_at_ms: int | None = None
    """When it is cancelled unless it has started by then; null if it does not expire, or has started."""
    attempts: int
    failures: int
    losses: int
    cancel_requested: bool
    worker: str
    correlation_id: str
    failure: Failure | None
    gather: MembershipView | UnsetType = UNSET
    """Of a member of a gather."""
    gathered: str | UnsetType = UNSET
    """Of a continuation: the id of its gather."""


class JobView(JobSummary, frozen=True, kw_only=True):
    """A job with all that is known of it."""

    payload: Raw
    result: Raw
    timeout_ms: int
    retention_ms: int | None = None
    """How long it is kept once it has succeeded or was cancelled; null from a server that does not say."""
    retry: RetryPolicy
    start_rate: StartRate | None
    traceparent: str | None
    history: list[AttemptView]


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, the newest first. `cursor` asks for those that follow; null is the end."""

    jobs: list[JobSummary]
    cursor: str | None


class ResultView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job came to, so far."""

    id: str
    state: State
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None


class OfferView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that is offered, to be accepted with its token by `accept_by_ms`. A field with its default is left out.

    `accept_in_ms` is how long that is from now, and `lease_ms` how long the lease lasts from accept or a heartbeat:
    a worker that goes by these needs no clock that agrees with the server's.
    """

    token: str
    id: str
    queue: str
    task: str
    payload: Raw
    attempt: int
    enqueued_at_ms: int
    accept_by_ms: int
    accept_in_ms: int
    lease_ms: int
    timeout_ms: int
    tenant: str = ""
    priority: int = PRIORITY_DEFAULT
    tags: tuple[str, ...] = ()
    failures: int = 0
    losses: int = 0
    traceparent: str | None = None
    correlation_id: str = ""
    gather: MembershipView | UnsetType = UNSET
    gathered: str | UnsetType = UNSET


class OffersView(msgspec.Struct, frozen=True, kw_only=True):
    """What a poll was offered. `drain`: this server is about to stop."""

    offers: list[OfferView]
    drain: bool = False


class StreamLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a stream: its name, which comes first; an offer; a sign of life; or the end."""

    stream: str | None = None
    offer: OfferView | None = None
    keep_alive: bool = False
    held_back: bool = False
    """Nothing is offered until the worker is heard from: it let an offer or a lease lapse."""
    drain: bool = False


class CreditView(msgspec.Struct, frozen=True, kw_only=True):
    """How much credit a stream has now, and how much of it is taken."""

    credit: int
    taken: int


class ReportView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a report led to. `cancel` asks the worker to stop this job, `drain` to take no more from this server.

    `until_ms` is the end of the lease, or when the job is due again; `lease_ms` is what is left of the lease. A field
    with its default is left out.
    """

    state: State
    attempt: int
    until_ms: int | None = None
    lease_ms: int | None = None
    cancel: bool = False
    drain: bool = False


class ReportEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one report of several."""

    status: int
    report: ReportView | None = None
    problem: Problem | None = None


class ReportsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each report, in order."""

    results: list[ReportEntry]


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job."""

    seq: int
    attempt: int
    kind: str
    data: Raw
    at_ms: int


class EventsView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a job's events. `after` is the last one that was looked at, and asks for those that follow.

    `complete` says that these are all that there are now, and that `state` is the job's state after the last of them.
    """

    events: list[EventView]
    after: int
    complete: bool
    state: State


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: its settings, and how many jobs it has in each state."""

    name: str
    paused: bool
    revision: int
    created_at_ms: int
    settings: JobQueueSettings
    counts: dict[str, int]
    depth: int
    """How many wait, which is what `depth_max` bounds."""
    oldest_due_ms: int | None


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """An open stream, or the recent polls of a worker for the same queues and tasks.

    `credit` is how many jobs it may have at once; of polls, how many the last one asked for. `running` is how many jobs
    of a stream are accepted, as far as its server knows; of polls it is not known.
    """

    name: str
    kind: Literal["stream", "poll"]
    queues: tuple[str, ...]
    tasks: tuple[str, ...] | None
    credit: int
    running: int | None
    since_ms: int
    seen_at_ms: int


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Workers in the order of their names; `after` asks for those that follow."""

    workers: list[WorkerView]
    after: str | None


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """Queues in the order of their names; `after` asks for those that follow."""

    queues: list[QueueView]
    after: str | None


class DeadGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one task that died of the same kind of failure."""

    task: str
    kind: str
    count: int
    last_at_ms: int
    example_id: str


class DeadGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The dead jobs of a queue in groups, the largest first."""

    groups: list[DeadGroupView]


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is done to many jobs, and how far it is."""

    id: str
    kind: str
    queue: str
    state: str
    done: int
    rate: int | None
    limit: int | None
    started_at_ms: int
    ended_at_ms: int | None


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of a queue, the newest first."""

    operations: list[OperationView]


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs would be meant; `more` if there may be more than were counted."""

    dry_run: bool
    matching: int
    more: bool


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, when it fires next, and what it enqueued last."""

    name: str
    queue: str
    task: str
    payload: Raw
    cron: str | None
    zone: str
    interval_ms: int | None
    paused: bool
    next_at_ms: int | None
    last_at_ms: int | None
    last_job_id: str | None


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules in the order of their names; `after` asks for those that follow."""

    schedules: list[ScheduleView]
    after: str | None
