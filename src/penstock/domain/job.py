"""Jobs: their states, what moves them from one to the next, and what is kept of each."""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from penstock.domain.retry import RetryPolicy

PRIORITY_DEFAULT = 4
PRIORITY_MAX = 9
"""Higher comes first, within a tenant."""


class JobState(IntEnum):
    """Where a job is. The numbers are kept in stores, so they never change."""

    SCHEDULED = 1
    """Not due yet: it was given a delay or an instant, or was snoozed."""
    QUEUED = 2
    """Due. It waits for a worker; or, in an ordered group or under a concurrency key, for its turn."""
    OFFERED = 3
    """Shown to one worker, who has seconds to accept it."""
    RUNNING = 4
    """Accepted by one worker, whose lease lasts while it sends heartbeats."""
    RETRYING = 5
    """An attempt failed or was lost; it comes due again when its backoff is over."""
    SUCCEEDED = 6
    DEAD = 7
    """It failed for good: out of attempts, a permanent failure, or lost too often. It can be retried by hand."""
    CANCELLED = 8

    @property
    def label(self) -> str:
        """The state's name, as users see it."""
        return self.name.lower()


EXPIRED = "Expired"
"""The kind of failure of a cancelled job that had not started by its expiry."""

TERMINAL = frozenset({JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED})
IN_FLIGHT = frozenset({JobState.OFFERED, JobState.RUNNING})
WAITING = frozenset({JobState.SCHEDULED, JobState.QUEUED, JobState.RETRYING})
"""What counts against the bound of a queue."""


class Move(StrEnum):
    """What can happen to a job."""

    COME_DUE = "come due"
    OFFER = "offer"
    ACCEPT = "accept"
    RETURN = "return"
    """The offer was declined, not accepted in time, or its stream broke: it costs no attempt."""
    COMPLETE = "complete"
    FAIL = "fail"
    FAIL_FOR_GOOD = "fail for good"
    LOSE = "lose"
    """The lease lapsed."""
    LOSE_FOR_GOOD = "lose for good"
    RELEASE = "release"
    """The worker gives a running job back, as when it shuts down: it costs no attempt."""
    SNOOZE = "snooze"
    """The worker puts a running job off: it costs no attempt."""
    CANCEL = "cancel"
    EXPIRE = "expire"
    """It had not started by its expiry."""
    RETRY = "retry"


TRANSITIONS: dict[tuple[JobState, Move], JobState] = {
    (JobState.SCHEDULED, Move.COME_DUE): JobState.QUEUED,
    (JobState.RETRYING, Move.COME_DUE): JobState.QUEUED,
    (JobState.QUEUED, Move.OFFER): JobState.OFFERED,
    (JobState.OFFERED, Move.RETURN): JobState.QUEUED,
    (JobState.OFFERED, Move.ACCEPT): JobState.RUNNING,
    (JobState.RUNNING, Move.COMPLETE): JobState.SUCCEEDED,
    (JobState.RUNNING, Move.FAIL): JobState.RETRYING,
    (JobState.RUNNING, Move.FAIL_FOR_GOOD): JobState.DEAD,
    (JobState.RUNNING, Move.LOSE): JobState.RETRYING,
    (JobState.RUNNING, Move.LOSE_FOR_GOOD): JobState.DEAD,
    (JobState.RUNNING, Move.RELEASE): JobState.QUEUED,
    (JobState.RUNNING, Move.SNOOZE): JobState.SCHEDULED,
    (JobState.SCHEDULED, Move.CANCEL): JobState.CANCELLED,
    (JobState.QUEUED, Move.CANCEL): JobState.CANCELLED,
    (JobState.OFFERED, Move.CANCEL): JobState.CANCELLED,
    (JobState.RETRYING, Move.CANCEL): JobState.CANCELLED,
    # A running job is asked to stop, and is cancelled once its worker reports back in whatever way, or is lost.
    (JobState.RUNNING, Move.CANCEL): JobState.CANCELLED,
    # Only before its first attempt: a job that has started once does not expire.
    (JobState.SCHEDULED, Move.EXPIRE): JobState.CANCELLED,
    (JobState.QUEUED, Move.EXPIRE): JobState.CANCELLED,
    (JobState.OFFERED, Move.EXPIRE): JobState.CANCELLED,
    (JobState.DEAD, Move.RETRY): JobState.QUEUED,
    (JobState.CANCELLED, Move.RETRY): JobState.QUEUED,
    (JobState.SCHEDULED, Move.RETRY): JobState.QUEUED,
    (JobState.RETRYING, Move.RETRY): JobState.QUEUED,
}
"""The whole lifecycle. What is not in here cannot happen."""


class Lane(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line of jobs of one tenant, of which only some may be in flight at once.

    Ordered (a *group*): one at a time, in the order of enqueueing, and one that waits for its retry holds up those
    behind it. Otherwise (a *concurrency key*): `width` at a time, the most urgent first, and one that waits for its
    retry lets others go ahead.
    """

    key: str
    width: int = 1
    ordered: bool = False
    shared: bool = False
    """The jobs of all tenants stand in this line, as the settings of their queue say."""


class StartRate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many jobs of a queue and a tenant with a key start in a second, and how many at once after a pause."""

    key: str
    per_second: float
    burst: int = 1


class OnDuplicate(StrEnum):
    """What becomes of an unfinished job that has the unique key of a new one."""

    KEEP = "keep"
    """It stays, and stands for the new one."""
    REPLACE = "replace"
    """It is cancelled and the new one takes its place; but it stays if it is offered or runs."""


class Membership(msgspec.Struct, frozen=True, gc=False):
    """The gather that a job is a member of, and its place among the members, from 0."""

    gather_id: str
    index: int


class JobDraft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to be enqueued; checked already."""

    id: str
    task: str
    payload: bytes
    """JSON text."""
    run_at_ms: int | None = None
    """When it comes due; None is at once. With `delay_ms` set it is counted from the store's now."""
    delay_ms: int = 0
    expires_in_ms: int | None = None
    """How long after it is enqueued its first attempt may start; later it is cancelled. None is for ever."""
    retention_ms: int | None = None
    """How long it is kept once it has succeeded or was cancelled; None is the queue's."""
    priority: int = PRIORITY_DEFAULT
    tenant: str = ""
    lane: Lane | None = None
    timeout_ms: int | None = None
    """How long one attempt may run, heartbeats or not; None is the queue's."""
    retry: RetryPolicy | None = None
    """None is the queue's."""
    unique_key: str | None = None
    """At most one job of the queue and the tenant with this key is not yet finished."""
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    start_rate: StartRate | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None
    """The W3C traceparent of who enqueued it."""
    correlation_id: str = ""
    idempotency_key: bytes | None = None
    """A digest of the caller's key and tenant, 32 bytes."""
    fingerprint: bytes = b""
    """A digest of everything that the request asked for, to tell another request under the same key."""
    chosen: bool = False
    """The caller chose the id, so this may be a repeat: a job may have the id already."""
    member: Membership | None = None
    gathered: str | None = None
    """The id of the gather that it is the continuation of."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to report on one attempt of a job. `fence` is greater than that of any lease of the job before."""

    job_id: str
    attempt: int
    fence: int


class Offer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job as it is shown to a worker."""

    lease: Lease
    queue: str
    task: str
    payload: bytes
    tenant: str
    priority: int
    tags: tuple[str, ...]
    enqueued_at_ms: int
    accept_by_ms: int
    accept_in_ms: int
    """How long, from when it was made or found again, until `accept_by_ms`."""
    lease_ms: int
    """How long its lease will last from accept or a heartbeat, unless its timeout comes first."""
    timeout_ms: int
    failures: int
    losses: int
    trace: str | None
    correlation_id: str
    member: Membership | None = None
    gathered: str | None = None


class AttemptOutcome(IntEnum):
    """How an attempt ended. The numbers are kept in stores."""

    RUNNING = 0
    SUCCEEDED = 1
    FAILED = 2
    LOST = 3
    RELEASED = 4
    SNOOZED = 5
    CANCELLED = 6
    TIMED_OUT = 7

    @property
    def label(self) -> str:
        """The outcome's name, as users see it."""
        return self.name.lower()


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why an attempt failed, as its worker tells; or why the service ended it, or the job."""

    kind: str
    """What the failure is grouped by, such as the exception's class."""
    message: str = ""
    details: str = ""
    """A stack trace, say."""
    permanent: bool = False
    """It would fail again, so it is not tried again."""
    retry_after_ms: int | None = None
    """Not to be tried again sooner."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is kept of one attempt."""

    number: int
    worker: str
    started_at_ms: int
    outcome: AttemptOutcome
    ended_at_ms: int | None = None
    failure: Failure | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job as it is now."""

    id: str
    position: int
    """Grows in the order of enqueueing; pages go by it."""
    queue: str
    task: str
    state: JobState
    payload: bytes
    priority: int
    tenant: str
    lane: Lane | None
    tags: tuple[str, ...]
    unique_key: str | None
    enqueued_at_ms: int
    due_at_ms: int | None
    """When it comes due, its offer ends, its lease lapses, or it expires; None if nothing happens by itself."""
    finished_at_ms: int | None
    attempts: int
    failures: int
    losses: int
    timeout_ms: int
    retry: RetryPolicy
    cancel_requested: bool
    worker: str
    trace: str | None
    correlation_id: str
    retention_ms: int
    """How long it is kept once it has succeeded or was cancelled: its own, or its queue's."""
    expires_at_ms: int | None = None
    """When it is cancelled unless its first attempt has started; None if that cannot happen any more."""
    start_rate: StartRate | None = None
    result: bytes | None = None
    """JSON text."""
    failure: Failure | None = None
    """The last one."""
    history: tuple[Attempt, ...] = ()
    """Oldest first, the last `limits.attempts_shown_max`; empty in lists."""
    member: Membership | None = None
    gathered: str | None = None
    """The id of the gather that it is the continuation of."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which events of a job are meant: those that have all of what is given here."""

    kinds: tuple[str, ...] = ()
    """Of one of these kinds; none means any."""
    from_ms: int | None = None
    before_ms: int | None = None


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that a job's worker told while it ran, or that happened to the job."""

    seq: int
    """From 1, without gaps, within the job."""
    attempt: int
    kind: str
    data: bytes
    """JSON text."""
    at_ms: int
