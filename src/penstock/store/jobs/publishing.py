"""Events that workers publish by reports, many of several jobs in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.job import JobState
from penstock.domain.job_errors import JobError, JobInvalid, JobStateConflict, LeaseLost, TooManyEvents
from penstock.store.job_port import NewEvent, Publish, Reported
from penstock.store.jobs.events import OWN_ID
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.store.jobs.changes import Changes
    from penstock.store.jobs.rows import JobRecord
    from penstock.store.jobs.script import Script


def find_published(changes: Changes, jobs: Mapping[str, JobRecord], reports: Sequence[Publish]) -> Script[Publishing]:
    """Find out which events of these reports are there already. The jobs are locked, so no others are added."""
    wanted = {
        (jobs[one.lease.job_id].position, event.id)
        for one in reports
        if one.lease.job_id in jobs
        for event in one.events
    }
    rows = (yield "known_events", (listed(sorted(wanted)),)) if wanted else []
    return Publishing(changes, {(position, event_id): attempt for position, event_id, attempt in rows})


class Publishing:
    """Publishes the events of reports, each report as a whole."""

    def __init__(self, changes: Changes, known: dict[tuple[int, str], int]) -> None:
        """`known` has the attempts that have published, by position and the event's id."""
        self._changes = changes
        self._known = known

    def publish(self, job: JobRecord, report: Publish, *, held: bool) -> Reported | JobError:
        """Publish those events of a report that are not known, all or none. `held`: its lease is the job's own."""
        attempt = report.lease.attempt
        if held and job.state is JobState.OFFERED:
            return JobStateConflict(f"The offer of job {job.id} has not been accepted.")
        new: dict[str, NewEvent] = {}
        for event in report.events:
            if event.id.startswith(OWN_ID):
                return JobInvalid(f"The id of an event does not begin with {OWN_ID!r}.", "id")
            published_by = self._known.get((job.position, event.id))
            if published_by is None:
                new.setdefault(event.id, event)
            elif published_by != attempt:
                return LeaseLost(f"Another attempt of job {job.id} has published the event {event.id!r}.")
        if new and not held:
            return LeaseLost(f"The lease on attempt {attempt} of job {job.id} is over.")
        if new and job.events + len(new) > job.settings.events_max:
            return TooManyEvents(
                f"Job {job.id} has {job.events} events. With {len(new)} more there would be over "
                f"{job.settings.events_max}, which is its limit."
            )
        for event in new.values():
            self._changes.publish(job, event.id, event.kind, event.data)
            self._known[job.position, event.id] = attempt
        # Of a lease that is over, what is left is another's.
        return self._changes.reported(job) if held else Reported(job.state, attempt=attempt)
