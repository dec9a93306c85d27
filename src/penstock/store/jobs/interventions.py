"""What somebody asks for a job, other than its worker: to cancel it, or to have it run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.job import IN_FLIGHT, TERMINAL, JobState
from penstock.domain.job_errors import JobDoesNotExist, JobStateConflict
from penstock.domain.limits import REPEAT_WINDOW_MS
from penstock.store.jobs import reading
from penstock.store.jobs.changes import Changes, load
from penstock.store.jobs.due import lapse
from penstock.store.jobs.events import OWN_ID
from penstock.store.jobs.lanes import name_of, open_lanes
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from penstock.domain.job import Job
    from penstock.store.jobs.rows import JobRecord
    from penstock.store.jobs.script import Script, Tx
    from penstock.store.jobs.surroundings import Surroundings


def cancel(tx: Tx, around: Surroundings, job_id: str, event_id: str) -> Script[Job | JobStateConflict]:
    """Cancel a job, or ask its worker to stop. Who is refused is told so in the answer: what came due is kept.

    `event_id` identifies the call. It names the event; or, if there was nothing to do and the caller has chosen it, it
    is kept by itself.
    """
    changes, job = yield from _load_one(tx, around, job_id)
    asked = job.state is JobState.RUNNING and job.cancel_requested
    conflict = None
    if not (yield from _was_done(tx, job, event_id)):
        if asked or job.state is JobState.CANCELLED:
            yield from _remember(tx, job, event_id)
        elif job.state in TERMINAL:
            conflict = JobStateConflict(f"Job {job_id} is {job.state.label} already.")
        else:
            changes.cancel(job, event_id)
    yield from changes.save()
    return conflict or (yield from reading.job(tx, around, job_id))


def retry(tx: Tx, around: Surroundings, job_id: str, event_id: str) -> Script[Job | JobStateConflict]:
    """Queue a job again. Who is refused is told so in the answer, as by `cancel`."""
    # Nobody else may enqueue its unique key meanwhile. Before the job is locked, as those who enqueue do it.
    for (queue_id,) in (yield "finished_unique", (listed([job_id]),)):
        yield "lock_queue", (queue_id,)
    changes, job = yield from _load_one(tx, around, job_id)
    conflict = None
    if not (yield from _was_done(tx, job, event_id)):
        if job.state is JobState.QUEUED:
            yield from _remember(tx, job, event_id)
        elif job.state in IN_FLIGHT or job.state is JobState.SUCCEEDED:
            conflict = JobStateConflict(f"Job {job_id} is {job.state.label}.")
        elif (yield from unique_key_taken(job)):
            conflict = JobStateConflict(f"Another job with the unique key of job {job_id} is not finished.")
        else:
            yield from reopen_lane(changes, job)
            changes.retry(job, event_id)
    yield from changes.save()
    return conflict or (yield from reading.job(tx, around, job_id))


def unique_key_taken(job: JobRecord) -> Script[bool]:
    """Tell whether a finished job cannot come back because of its unique key. The queue is locked if it was finished
    before this transaction.
    """
    if job.finished_at is None or job.unique_key is None:
        return False
    rows = yield "unique_jobs", (job.queue_id, listed([(job.tenant, job.unique_key)]))
    # If it was finished in this transaction only, its own row still has the key, so that nobody else can.
    return any(job_id != job.id for _, _, job_id, _, _ in rows)


def reopen_lane(changes: Changes, job: JobRecord) -> Script[None]:
    """Make the lane of a job that is to come back anew, if it was removed."""
    lane = job.options.lane
    if lane is not None and not changes.has_lane(job):
        name = name_of(lane, job.tenant)
        lanes = yield from open_lanes(job.queue_id, [(name, lane.width)])
        changes.enter_lane(job, lanes[name])


def _load_one(tx: Tx, around: Surroundings, job_id: str) -> Script[tuple[Changes, JobRecord]]:
    changes, jobs = yield from load(tx, around, [job_id])
    if job_id not in jobs:
        raise JobDoesNotExist(job_id)
    job = jobs[job_id]
    if job.state in IN_FLIGHT or (job.state not in TERMINAL and job.has_expired(tx.now_ms)):
        lapse(changes, job, tx.now_ms)
    return changes, job


def _was_done(tx: Tx, job: JobRecord, event_id: str) -> Script[bool]:
    """Return whether the same call was carried out before, be it by a run that was committed after all or because its
    answer was lost; whatever came after that.
    """
    if (yield "event_by_id", (job.position, event_id)):
        return True
    return event_id.startswith(OWN_ID) and bool((yield "spent", (listed([_key(job, event_id)]), tx.now_ms)))


def _remember(tx: Tx, job: JobRecord, event_id: str) -> Script[None]:
    """Keep a call that had nothing to do: repeated after the job has moved on, it has nothing to do either."""
    if event_id.startswith(OWN_ID):
        yield "note_spent", (_key(job, event_id), None, tx.now_ms + REPEAT_WINDOW_MS)


def _key(job: JobRecord, event_id: str) -> str:
    return f"{job.position}{event_id}"
