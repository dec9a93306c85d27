"""How jobs, offers, events, queues, operations and schedules of the domain are shown to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, UnsetType

from penstock.domain.job import JobState
from penstock.wire.jobs.answers import (
    AttemptView,
    EventView,
    JobSummary,
    JobView,
    MembershipView,
    OfferView,
    OperationView,
    QueueView,
    ResultView,
    ScheduleView,
    label,
)

if TYPE_CHECKING:
    from penstock.domain.job import Attempt, Job, JobEvent, Membership, Offer
    from penstock.domain.job_queue import JobCounts, JobQueue
    from penstock.domain.operation import Operation
    from penstock.domain.schedule import Schedule


def _summary(job: Job) -> dict[str, object]:
    lane = job.lane
    return {
        "id": job.id,
        "queue": job.queue,
        "task": job.task,
        "state": label(job.state),
        "priority": job.priority,
        "tenant": job.tenant,
        "group": lane.key if lane is not None and lane.ordered else None,
        "concurrency_key": lane.key if lane is not None and not lane.ordered else None,
        "tags": job.tags,
        "unique_key": job.unique_key,
        "enqueued_at_ms": job.enqueued_at_ms,
        "due_at_ms": job.due_at_ms,
        "finished_at_ms": job.finished_at_ms,
        "expires_at_ms": job.expires_at_ms,
        "attempts": job.attempts,
        "failures": job.failures,
        "losses": job.losses,
        "cancel_requested": job.cancel_requested,
        "worker": job.worker,
        "correlation_id": job.correlation_id,
        "failure": job.failure,
        "gather": _membership_view(job.member),
        "gathered": job.gathered or UNSET,
    }


def _membership_view(member: Membership | None) -> MembershipView | UnsetType:
    return UNSET if member is None else MembershipView(id=member.gather_id, index=member.index)


def job_summary(job: Job) -> JobSummary:
    """Show a job in a list."""
    return JobSummary(**_summary(job))  # type: ignore[arg-type] # The names are those of the fields.


def job_view(job: Job) -> JobView:
    """Show a job."""
    return JobView(
        **_summary(job),  # type: ignore[arg-type] # As above.
        payload=Raw(job.payload),
        result=Raw(job.result or b"null"),
        timeout_ms=job.timeout_ms,
        retention_ms=job.retention_ms,
        retry=job.retry,
        start_rate=job.start_rate,
        traceparent=job.trace,
        history=[_attempt_view(attempt) for attempt in job.history],
    )


def _attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        worker=attempt.worker,
        outcome=attempt.outcome.label,
        started_at_ms=attempt.started_at_ms,
        ended_at_ms=attempt.ended_at_ms,
        failure=attempt.failure,
    )


def result_view(job: Job) -> ResultView:
    """Show what a job came to."""
    return ResultView(
        id=job.id,
        state=label(job.state),
        result=Raw(job.result or b"null") if job.state is JobState.SUCCEEDED else UNSET,
        failure=job.failure,
    )


def offer_view(offer: Offer, token: str) -> OfferView:
    """Show an offer."""
    return OfferView(
        token=token,
        id=offer.lease.job_id,
        queue=offer.queue,
        task=offer.task,
        payload=Raw(offer.payload),
        attempt=offer.lease.attempt,
        tenant=offer.tenant,
        priority=offer.priority,
        tags=offer.tags,
        enqueued_at_ms=offer.enqueued_at_ms,
        accept_by_ms=offer.accept_by_ms,
        accept_in_ms=offer.accept_in_ms,
        lease_ms=offer.lease_ms,
        timeout_ms=offer.timeout_ms,
        failures=offer.failures,
        losses=offer.losses,
        traceparent=offer.trace,
        correlation_id=offer.correlation_id,
        gather=_membership_view(offer.member),
        gathered=offer.gathered or UNSET,
    )


def event_view(event: JobEvent) -> EventView:
    """Show an event."""
    return EventView(seq=event.seq, attempt=event.attempt, kind=event.kind, data=Raw(event.data), at_ms=event.at_ms)


def queue_view(queue: JobQueue, counts: JobCounts, depth: int) -> QueueView:
    """Show a queue."""
    return QueueView(
        name=queue.name,
        paused=queue.paused,
        revision=queue.revision,
        created_at_ms=queue.created_at_ms,
        settings=queue.settings,
        counts={state.label: counts.by_state.get(state, 0) for state in JobState},
        depth=depth,
        oldest_due_ms=counts.oldest_due_ms,
    )


def operation_view(operation: Operation) -> OperationView:
    """Show an operation."""
    return OperationView(
        id=operation.id,
        kind=operation.kind.label,
        queue=operation.queue,
        state=operation.state.label,
        done=operation.done,
        rate=operation.rate,
        limit=operation.limit,
        started_at_ms=operation.started_at_ms,
        ended_at_ms=operation.ended_at_ms,
    )


def schedule_view(schedule: Schedule) -> ScheduleView:
    """Show a schedule."""
    return ScheduleView(
        name=schedule.name,
        queue=schedule.queue,
        task=schedule.draft.task,
        payload=Raw(schedule.draft.payload),
        cron=schedule.cron,
        zone=schedule.zone,
        interval_ms=schedule.interval_ms,
        paused=schedule.paused,
        next_at_ms=schedule.next_at_ms,
        last_at_ms=schedule.last_at_ms,
        last_job_id=schedule.last_job_id,
    )
