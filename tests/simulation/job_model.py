"""A plain model of jobs: what is true of each, in lists and dictionaries, without indexes, places or locks."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.domain.job import (
    EXPIRED,
    IN_FLIGHT,
    TERMINAL,
    WAITING,
    JobDraft,
    JobState,
    Lease,
    Offer,
    OnDuplicate,
)
from penstock.domain.job_errors import (
    IdempotencyKeyNeeded,
    IdempotencyKeyReused,
    JobDoesNotExist,
    JobError,
    JobRefused,
    JobStateConflict,
    LeaseLost,
)
from penstock.domain.job_queue import JobQueue
from penstock.domain.limits import REPEAT_WINDOW_MS
from penstock.domain.operation import JobFilter
from penstock.domain.retry import RetryPolicy, backoff_ms
from penstock.store.job_port import (
    Accept,
    Complete,
    Enqueued,
    Fail,
    Heartbeat,
    LeaseState,
    Release,
    Report,
    Reported,
    Snooze,
)

Expected = Reported | type[JobError]


@dataclass(eq=False)
class ModelJob:
    """One job."""

    draft: JobDraft
    queue: JobQueue
    state: JobState
    due_at_ms: int | None
    known_until_ms: int
    """For how long its id is remembered, should it be purged."""
    due_since_ms: int
    """Since when it has been due, if it is; being offered or released makes no difference."""
    expires_at_ms: int | None = None
    attempts: int = 0
    failures: int = 0
    losses: int = 0
    fence: int = 0
    times_out_at_ms: int | None = None
    cancel_requested: bool = False
    finished_at_ms: int | None = None
    failure_kind: str | None = None
    """Of the last attempt that failed, timed out or was lost."""
    ended: dict[int, tuple[type[Report], Reported]] = field(default_factory=dict)
    """By fence: the report that ended the attempt, and its answer."""
    attempts_ended: dict[int, LeaseState] = field(default_factory=dict)
    """By fence: how the attempt ended."""
    accepted: set[int] = field(default_factory=set)
    """The fences of the offers that were accepted."""

    @property
    def retry(self) -> RetryPolicy:
        return self.draft.retry or self.queue.settings.retry

    @property
    def unfinished(self) -> bool:
        return self.state not in TERMINAL

    @property
    def kept_ms(self) -> int:
        settings = self.queue.settings
        kept_ms = settings.retention_ms if self.draft.retention_ms is None else self.draft.retention_ms
        return max(settings.dead_retention_ms if self.state is JobState.DEAD else kept_ms, REPEAT_WINDOW_MS)

    @property
    def expiry_ms(self) -> int | None:
        """When it expires; None if it does not, or has started."""
        return None if self.attempts else self.expires_at_ms

    def has_expired(self, now_ms: int) -> bool:
        return self.unfinished and self.expiry_ms is not None and self.expiry_ms <= now_ms

    def matches(self, wanted: JobFilter) -> bool:
        """Whether it is one of those: of the filter's parts, as far as the machine uses them."""
        return (
            wanted.queue == self.queue.name
            and (not wanted.states or self.state in wanted.states)
            and wanted.tenant in (None, self.draft.tenant)
            and wanted.failure_kind in (None, self.failure_kind)
        )

    def told(self, now_ms: int) -> Reported:
        lease_ms = None
        if self.state is JobState.RUNNING and self.due_at_ms is not None:
            lease_ms = self.due_at_ms - now_ms
        until_ms = None if self.state is JobState.QUEUED else self.due_at_ms
        return Reported(self.state, until_ms, self.cancel_requested, self.attempts, lease_ms)


_Answer = tuple[ModelJob, bool, bool, str | None]
"""The job, whether it is new, whether another draft's unique key found it, and the job that it replaced."""


class JobModel:
    """All jobs, in the order of enqueueing."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.jobs: list[ModelJob] = []
        self._keys: dict[tuple[int, bytes], tuple[int, bytes, ModelJob]] = {}
        self.purged: list[ModelJob] = []

    # -- enqueueing -------------------------------------------------------------------------------

    def enqueue(self, queue: JobQueue, drafts: list[JobDraft]) -> list[Enqueued | type[JobError]]:
        for job in self.jobs:
            if job.queue.id == queue.id and any(_same_unique_key(job.draft, draft) for draft in drafts):
                # Its key is free.
                self.expire(job)
        answers = [self._enqueue(queue, draft) for draft in drafts]
        # All are told where the jobs are in the end.
        return [
            Enqueued(answer[0].draft.id, answer[0].state, *answer[1:]) if isinstance(answer, tuple) else answer
            for answer in answers
        ]

    def _enqueue(self, queue: JobQueue, draft: JobDraft) -> _Answer | type[JobError]:
        key = draft.idempotency_key
        if key is not None:
            expires_at_ms, fingerprint, found = self._keys.get((queue.id, key), (0, b"", None))
            gone = found is not None and found not in self.jobs and found.known_until_ms <= self.now_ms
            if found is not None and expires_at_ms > self.now_ms and not gone:
                return (found, False, False, None) if fingerprint == draft.fingerprint else IdempotencyKeyReused
        elif queue.settings.strict:
            return IdempotencyKeyNeeded
        mine = [job for job in self.jobs if job.queue.id == queue.id]
        holders = [job for job in mine if job.unfinished and _same_unique_key(job.draft, draft)]
        replaced = None
        if holders and draft.on_duplicate is OnDuplicate.REPLACE and holders[0].state in WAITING:
            [replaced], holders = holders, []
        waiting = sum(job.state in WAITING for job in mine) - (replaced is not None)
        if not holders and waiting >= queue.settings.depth_max:
            return JobRefused
        if holders:
            [job] = holders
        else:
            if replaced is not None:
                self._finish(replaced, JobState.CANCELLED)
            expiry_ms = None if draft.expires_in_ms is None else self.now_ms + draft.expires_in_ms
            due_at_ms = self.now_ms + draft.delay_ms if draft.delay_ms else expiry_ms
            state = JobState.SCHEDULED if draft.delay_ms else JobState.QUEUED
            known_until_ms = self.now_ms + REPEAT_WINDOW_MS
            job = ModelJob(draft, queue, state, due_at_ms, known_until_ms, self.now_ms, expiry_ms)
            self.jobs.append(job)
        if key is not None:
            kept_ms = max(queue.settings.key_ttl_ms, REPEAT_WINDOW_MS)
            self._keys[queue.id, key] = (self.now_ms + kept_ms, draft.fingerprint, job)
        return job, not holders, bool(holders), None if replaced is None else replaced.draft.id

    # -- offering ---------------------------------------------------------------------------------

    def eligible(self, queue: JobQueue, tasks: tuple[str, ...]) -> list[ModelJob]:
        """The jobs, of these tasks if any are named, of which at least one more may be offered."""
        if queue.paused:
            return []
        mine = [job for job in self.jobs if job.queue.id == queue.id and (not tasks or job.draft.task in tasks)]
        return [job for job in mine if self._may_go(job)]

    def _may_go(self, job: ModelJob) -> bool:
        lane = job.draft.lane
        if job.state is not JobState.QUEUED:
            return False
        if lane is None:
            return True
        others = [one for one in self.jobs if one is not job and _same_lane(one, job)]
        if lane.ordered:
            before = self.jobs[: self.jobs.index(job)]
            return not any(one.unfinished for one in others if one in before) and not any(
                one.state in IN_FLIGHT for one in others
            )
        return sum(one.state in IN_FLIGHT for one in others) < lane.width

    def offered(self, queue: JobQueue, count: int, offers: list[Offer], tasks: tuple[str, ...]) -> None:
        """Check offers, and make them."""
        assert len(offers) <= count
        by_id = {job.draft.id: job for job in self.jobs}
        plain = [job for job in self.eligible(queue, tasks) if job.draft.lane is None]
        shares: dict[str, int] = {job.draft.tenant: 0 for job in self.eligible(queue, tasks)}
        for offer in offers:
            job = by_id[offer.lease.job_id]
            assert job in self.eligible(queue, tasks), f"{job} was not to be offered"
            job.state, job.fence = JobState.OFFERED, job.fence + 1
            job.due_at_ms = self.now_ms + queue.settings.offer_ms
            if job.expiry_ms is not None:
                job.due_at_ms = min(job.due_at_ms, job.expiry_ms)
            assert offer.lease == Lease(job.draft.id, job.attempts + 1, job.fence)
            assert offer.accept_by_ms == job.due_at_ms == self.now_ms + offer.accept_in_ms
            shares[job.draft.tenant] += 1
        left = self.eligible(queue, tasks)
        if tasks:
            # A job of another task may have the place already.
            left = [job for job in left if not self._crowded(job)]
        assert len(offers) == count or not left, f"{left[0]} was to be offered"
        for given in (job for job in plain if job.state is JobState.OFFERED):
            for kept in (job for job in plain if job.state is JobState.QUEUED):
                if given.draft.tenant == kept.draft.tenant:
                    assert self._urgency(given) < self._urgency(kept)
        for tenant in {job.draft.tenant for job in left if not self._crowded(job)}:
            assert max(shares.values()) <= shares[tenant] + 1, f"{tenant!r} got less than its share"

    def _crowded(self, job: ModelJob) -> bool:
        """Whether more jobs of its concurrency key are due than may go at once.

        Then it may have to wait for another that has the place already, and keeps it until its own tenant's turn.
        """
        lane = job.draft.lane
        if lane is None or lane.ordered:
            return False
        same = [one for one in self.jobs if _same_lane(one, job)]
        return sum(one.state is JobState.QUEUED or one.state in IN_FLIGHT for one in same) > lane.width

    def _urgency(self, job: ModelJob) -> tuple[int, int]:
        return job.due_since_ms - job.draft.priority * job.queue.settings.aging_ms, self.jobs.index(job)

    # -- what comes due ---------------------------------------------------------------------------

    def lapse(self, job: ModelJob) -> None:
        """Give effect to what has come due for a job."""
        self.expire(job)
        if job.due_at_ms is None or job.due_at_ms > self.now_ms:
            return
        if job.state is not JobState.RUNNING:
            if job.state is not JobState.OFFERED:
                job.due_since_ms = job.due_at_ms
            self._queue(job)
            return
        assert job.times_out_at_ms is not None
        timed_out = job.times_out_at_ms <= self.now_ms
        job.failure_kind = "timeout" if timed_out else "lost"
        job.failures += timed_out
        job.losses += not timed_out
        job.attempts_ended[job.fence] = LeaseState.OVER if timed_out or job.cancel_requested else LeaseState.LAPSED
        number, most = (job.failures, job.retry.attempts_max) if timed_out else (job.losses, job.retry.losses_max)
        self._end(job, number, dead=job.queue.settings.strict or number >= most, at_least_ms=0)

    def expire(self, job: ModelJob) -> None:
        """Cancel a job that had to start before now, and has not."""
        if job.has_expired(self.now_ms):
            job.failure_kind = EXPIRED
            self._finish(job, JobState.CANCELLED)

    def lapse_all(self, queue: JobQueue | None = None) -> None:
        for job in self.jobs:
            if queue is None or job.queue.id == queue.id:
                self.lapse(job)

    def next_due_ms(self) -> int | None:
        return min((job.due_at_ms for job in self.jobs if job.due_at_ms is not None), default=None)

    # -- reports ----------------------------------------------------------------------------------

    def report(self, said: Report) -> Expected:
        job = next((job for job in self.jobs if job.draft.id == said.lease.job_id), None)
        if job is None:
            return JobDoesNotExist
        if job.state in IN_FLIGHT:
            self.lapse(job)
        lease = said.lease
        if job.state is JobState.OFFERED and lease.fence == job.fence:
            return self._answer_offer(job, said)
        if job.state is JobState.RUNNING and lease.fence == job.fence:
            answer = self._answer_attempt(job, said)
            if isinstance(answer, Reported) and not isinstance(said, Accept | Heartbeat):
                job.ended[lease.fence] = (type(said), answer)
                job.attempts_ended[lease.fence] = LeaseState.REPORTED
            return answer
        ended = job.ended.get(lease.fence)
        if ended is not None and ended[0] is type(said):
            return ended[1]
        back = job.state is JobState.QUEUED and job.fence == lease.fence and lease.attempt == job.attempts + 1
        return job.told(self.now_ms) if back and isinstance(said, Release) else LeaseLost

    def lease_state(self, lease: Lease) -> LeaseState:
        """Where a lease stands. Nothing takes effect by asking."""
        job = next((job for job in self.jobs if job.draft.id == lease.job_id), None)
        if job is None:
            return LeaseState.OVER
        ended = job.attempts_ended.get(lease.fence)
        if ended is not None:
            return ended
        open_now = job.fence == lease.fence and job.due_at_ms is not None and job.due_at_ms > self.now_ms
        if lease.fence in job.accepted:
            if open_now:
                return LeaseState.RUNNING
            assert job.times_out_at_ms is not None
            return LeaseState.OVER if job.times_out_at_ms <= self.now_ms else LeaseState.LAPSED
        if job.state is JobState.OFFERED and open_now:
            return LeaseState.OFFERED
        over = not job.unfinished or job.has_expired(self.now_ms)
        return LeaseState.OVER if over and job.fence == lease.fence else LeaseState.LAPSED

    def _answer_offer(self, job: ModelJob, said: Report) -> Expected:
        if isinstance(said, Release):
            self._queue(job)
        elif isinstance(said, Accept):
            job.state, job.attempts = JobState.RUNNING, job.attempts + 1
            job.accepted.add(job.fence)
            job.times_out_at_ms = self.now_ms + (job.draft.timeout_ms or job.queue.settings.timeout_ms)
            self._extend(job)
        else:
            return JobStateConflict
        return job.told(self.now_ms)

    def _answer_attempt(self, job: ModelJob, said: Report) -> Expected:
        match said:
            case Release(unaccepted=True):
                return JobStateConflict
            case Heartbeat():
                self._extend(job)
            case Complete():
                self._finish(job, JobState.SUCCEEDED)
            case Fail(failure=failure):
                job.failure_kind = failure.kind
                job.failures += 1
                dead = failure.permanent or job.failures >= job.retry.attempts_max
                self._end(job, job.failures, dead=dead, at_least_ms=failure.retry_after_ms or 0)
            case Release() if not job.cancel_requested:
                self._queue(job)
            case Snooze(delay_ms=delay_ms) if not job.cancel_requested:
                job.state, job.due_at_ms = JobState.SCHEDULED, self.now_ms + delay_ms
            case Release() | Snooze():
                self._finish(job, JobState.CANCELLED)
        return job.told(self.now_ms)

    def _extend(self, job: ModelJob) -> None:
        assert job.times_out_at_ms is not None
        job.due_at_ms = min(self.now_ms + job.queue.settings.lease_ms, job.times_out_at_ms)

    def _end(self, job: ModelJob, number: int, *, dead: bool, at_least_ms: int) -> None:
        if job.cancel_requested:
            self._finish(job, JobState.CANCELLED)
        elif dead:
            self._finish(job, JobState.DEAD)
        else:
            job.state = JobState.RETRYING
            job.due_at_ms = self.now_ms + backoff_ms(job.retry, number, lambda: 1.0, at_least_ms)

    def _queue(self, job: ModelJob) -> None:
        job.state, job.due_at_ms = JobState.QUEUED, job.expiry_ms

    def _finish(self, job: ModelJob, state: JobState) -> None:
        job.state, job.due_at_ms, job.finished_at_ms = state, None, self.now_ms

    # -- what somebody asks for -------------------------------------------------------------------

    def cancel(self, job: ModelJob) -> bool:
        """Cancel a job, and tell whether that can be done."""
        if job.state in IN_FLIGHT or job.has_expired(self.now_ms):
            self.lapse(job)
        if job.state is JobState.RUNNING:
            job.cancel_requested = True
        elif job.unfinished:
            self._finish(job, JobState.CANCELLED)
        return job.state not in (JobState.SUCCEEDED, JobState.DEAD)

    def retry(self, job: ModelJob) -> bool:
        """Queue a job again, and tell whether that can be done."""
        if job.state in IN_FLIGHT or job.has_expired(self.now_ms):
            self.lapse(job)
        if job.state in IN_FLIGHT or job.state is JobState.SUCCEEDED:
            return False
        if not job.unfinished:
            rivals = [one for one in self.jobs if one.unfinished and one.queue.id == job.queue.id]
            if any(_same_unique_key(one.draft, job.draft) for one in rivals):
                return False
            job.failures = job.losses = 0
            job.cancel_requested, job.finished_at_ms, job.expires_at_ms = False, None, None
            if job.failure_kind == EXPIRED:
                job.failure_kind = None
        if job.state is not JobState.QUEUED:
            job.due_since_ms = self.now_ms if job.due_at_ms is None else min(job.due_at_ms, self.now_ms)
        self._queue(job)
        return True

    # -- what is done to many ---------------------------------------------------------------------

    def purge(self, wanted: JobFilter) -> int:
        """Remove the waiting jobs that match, and tell how many there were."""
        doomed = [job for job in self.jobs if job.state in WAITING and job.matches(wanted)]
        for job in doomed:
            job.state = JobState.CANCELLED
        self.purged += doomed
        self._remove(doomed)
        return len(doomed)

    def requeue(self, wanted: JobFilter) -> int:
        """Queue the dead jobs that match again, as far as their unique keys are free, and tell how many could be."""
        dead = [job for job in self.jobs if job.state is JobState.DEAD and job.matches(wanted)]
        return sum([self.retry(job) for job in dead])

    def sweep(self) -> None:
        """Remove finished jobs past their retention, but for those whose idempotency keys are still remembered."""
        remembered = [job for expires_at_ms, _, job in self._keys.values() if expires_at_ms > self.now_ms]
        self._remove(
            [
                job
                for job in self.jobs
                if job.finished_at_ms is not None
                and job.finished_at_ms + job.kept_ms <= self.now_ms
                and job not in remembered
            ]
        )

    def _remove(self, doomed: list[ModelJob]) -> None:
        self.jobs = [job for job in self.jobs if job not in doomed]
        # What stands for a job that was purged lately is kept.
        young = [job for job in doomed if job in self.purged and job.known_until_ms > self.now_ms]
        self._keys = {key: kept for key, kept in self._keys.items() if kept[2] not in doomed or kept[2] in young}


def _same_unique_key(one: JobDraft, other: JobDraft) -> bool:
    return one.unique_key is not None and (one.tenant, one.unique_key) == (other.tenant, other.unique_key)


def _same_lane(one: ModelJob, other: ModelJob) -> bool:
    lane, settings = one.draft.lane, one.queue.settings.lanes
    if lane is None or lane != other.draft.lane or one.queue.id != other.queue.id:
        return False
    shared = not lane.ordered and lane.key in settings and settings[lane.key].shared
    return shared or one.draft.tenant == other.draft.tenant
