"""Reports of workers: who holds a lease says what became of it, and who does not changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import JobState
from penstock.domain.job_errors import JobDoesNotExist, JobError, JobStateConflict, LeaseLost
from penstock.store.job_port import Accept, Complete, Fail, Heartbeat, Publish, Release, Reported, Snooze
from penstock.store.jobs.changes import Answered, Changes, load
from penstock.store.jobs.due import lapse
from penstock.store.jobs.publishing import find_published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.job import Lease
    from penstock.store.job_port import Report
    from penstock.store.jobs.rows import JobRecord
    from penstock.store.jobs.script import Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

_decode_answer = msgspec.msgpack.Decoder(Answered).decode


def report(tx: Tx, around: Surroundings, reports: Sequence[Report]) -> Script[list[Reported | JobError]]:
    """Judge each report, in order, and write what came of all of them."""
    changes, jobs = yield from load(tx, around, list({one.lease.job_id: None for one in reports}))
    publishing = yield from find_published(changes, jobs, [one for one in reports if isinstance(one, Publish)])
    answers: list[Reported | JobError] = []
    for one in reports:
        job = jobs.get(one.lease.job_id)
        if job is None:
            answers.append(JobDoesNotExist(one.lease.job_id))
            continue
        if job.state in (JobState.OFFERED, JobState.RUNNING):
            lapse(changes, job, tx.now_ms)
        held = holds(job, one.lease)
        if isinstance(one, Publish):
            answers.append(publishing.publish(job, one, held=held))
        elif held:
            answers.append(_take_in(changes, job, one))
        else:
            answers.append((yield from _answer_again(changes, job, one)))
    yield from changes.save()
    return answers


def holds(job: JobRecord, lease: Lease) -> bool:
    """Tell whether a lease is the one that the job is held by."""
    if lease.fence != job.fence:
        return False
    if job.state is JobState.RUNNING:
        return lease.attempt == job.attempts
    return job.state is JobState.OFFERED and lease.attempt == job.attempts + 1


def _take_in(changes: Changes, job: JobRecord, one: Report) -> Reported | JobError:
    """Do what the holder of the lease says."""
    if job.state is JobState.OFFERED and not isinstance(one, Accept | Release):
        return JobStateConflict(f"The offer of job {job.id} has not been accepted.")
    match one:
        case Accept():
            # Said again, it is answered again.
            if job.state is JobState.OFFERED:
                changes.accept(job)
        case Heartbeat():
            changes.extend(job)
        case Complete():
            changes.complete(job, one.result)
        case Fail():
            changes.fail(job, one.failure)
        case Release():
            if one.unaccepted and job.state is JobState.RUNNING:
                return JobStateConflict(f"The offer of job {job.id} was accepted meanwhile.")
            changes.release(job)
        case Snooze():
            changes.snooze(job, one.delay_ms)
    return changes.reported(job)


def _answer_again(changes: Changes, job: JobRecord, one: Report) -> Script[Reported | JobError]:
    """Answer the repetition of a report that ended its attempt as the first time; else the lease is lost."""
    lease = one.lease
    answered = changes.answers.get((job.position, lease.fence))
    if answered is None and not isinstance(one, Accept | Heartbeat):
        rows = yield "attempt_answer", (job.position, lease.fence)
        if rows and rows[0][0] is not None:
            answered = _decode_answer(rows[0][0])
    if answered is not None and answered.verb == type(one).__name__ and answered.reported.attempt == lease.attempt:
        return answered.reported
    if isinstance(one, Release) and _was_returned(job, lease):
        return changes.reported(job)
    return LeaseLost(f"The lease on attempt {lease.attempt} of job {job.id} is over.")


def _was_returned(job: JobRecord, lease: Lease) -> bool:
    """Tell whether the job is back from the offer that a lease stands for, and was not offered since."""
    return job.state is JobState.QUEUED and job.fence == lease.fence and job.attempts + 1 == lease.attempt
