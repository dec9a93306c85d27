"""Job queues: their settings, and what they hold."""

from __future__ import annotations

import msgspec

from penstock.domain.job import JobState
from penstock.domain.limits import DAY_MS, MINUTE_MS, SECOND_MS
from penstock.domain.retry import RetryPolicy


class Rate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A token bucket: so many in a second for long, and so many at once after a pause."""

    per_second: float
    burst: int


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When to stop offering jobs because what they need is down.

    Closed until so many failures came in a row; then open, and nothing is offered, for `open_ms`; then half-open: so
    many jobs are offered as probes. One that succeeds closes it, one that fails opens it again.
    """

    failures_max: int = 5
    open_ms: int = 30 * SECOND_MS
    probes: int = 1


class LaneSettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an operator decides about a concurrency key: it overrides what jobs ask for."""

    width: int
    """How many jobs with the key run at the same time."""
    shared: bool = False
    """One line for the jobs of all tenants; otherwise each tenant has its own. It counts for jobs enqueued later."""


class StartRateSettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an operator decides about the key of a start rate: it overrides what jobs ask for."""

    per_second: float
    burst: int = 1
    shared: bool = False
    """One rate for the jobs of all tenants; otherwise each tenant has its own. It counts for jobs enqueued later."""


class JobQueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator decides about a queue."""

    depth_max: int = 100_000
    """How many jobs may wait (scheduled, queued or retrying) before enqueueing is refused."""
    rate: Rate | None = None
    """Of the whole queue, over all tenants and nodes."""
    rate_per_tenant: Rate | None = None
    retry: RetryPolicy = RetryPolicy()
    breaker: BreakerPolicy | None = None
    """For the whole queue, and for each concurrency key by itself."""
    lanes: dict[str, LaneSettings] = {}
    """By concurrency key. The width of any other key is what its first unfinished job asked for."""
    start_rates: dict[str, StartRateSettings] = {}
    """By key. The rate of any other key is what its first job asked for, until none has started for an hour."""
    aging_ms: int = MINUTE_MS
    """How much longer a job has to be due to go before one of the same tenant with a priority higher by one.

    It counts for jobs that become due later. At 0 priorities make no difference.
    """
    offer_ms: int = 10 * SECOND_MS
    """How long a worker has to accept."""
    lease_ms: int = 30 * SECOND_MS
    """How long a lease lasts without a heartbeat."""
    timeout_ms: int = 60 * MINUTE_MS
    """How long an attempt may run, heartbeats or not."""
    derive_keys: bool = False
    """Take task, payload and tenant for the idempotency key where the caller gives none."""
    key_ttl_ms: int = DAY_MS
    """How long an idempotency key is remembered."""
    strict: bool = False
    """Consistency before availability; see docs/semantics.md."""
    retention_ms: int = 7 * DAY_MS
    """How long succeeded and cancelled jobs are kept."""
    dead_retention_ms: int = 30 * DAY_MS
    events_max: int = 10_000
    """How many events one job may have."""


class JobQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as it is now."""

    id: int
    name: str
    settings: JobQueueSettings
    paused: bool
    revision: int
    created_at_ms: int


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in each state, and for how long the oldest has been due."""

    by_state: dict[JobState, int]
    oldest_due_ms: int | None = None
