"""Scripts about the events of a job: published under a lease, and read from a number on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.job import JobEvent, JobState
from penstock.domain.job_errors import JobDoesNotExist, JobInvalid, LeaseLost, TooManyEvents
from penstock.store.job_port import Events
from penstock.store.jobs.events import OWN_ID, note_event
from penstock.store.jobs.reading import PAGE_BYTES_MAX, instants
from penstock.store.jobs.script import listed
from penstock.store.jobs.settings import decode_settings

if TYPE_CHECKING:
    from penstock.domain.job import EventFilter, Lease
    from penstock.store.jobs.script import Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings


class _Published:
    """A job whose row is locked, as far as publishing goes."""

    __slots__ = ("attempts", "due_at", "events", "fence", "id", "position", "settings", "state", "times_out_at")

    position: int
    id: str
    state: int
    fence: int
    attempts: int
    due_at: int | None
    times_out_at: int | None
    events: int

    def __init__(self, row: Row) -> None:
        (
            self.position,
            self.id,
            self.state,
            self.fence,
            self.attempts,
            self.due_at,
            self.times_out_at,
            self.events,
            settings,
        ) = row
        self.settings = decode_settings(settings)

    def runs_under(self, lease: Lease, now_ms: int) -> bool:
        """Whether the attempt of this lease is still the one that runs."""
        return (
            self.state == JobState.RUNNING
            and (self.attempts, self.fence) == (lease.attempt, lease.fence)
            and (self.due_at is None or self.due_at > now_ms)
            and (self.times_out_at is None or self.times_out_at > now_ms)
        )


def publish(tx: Tx, lease: Lease, event_id: str, kind: str, data: bytes) -> Script[JobEvent]:
    """Add an event to a running attempt, or find the one of this id."""
    if event_id.startswith(OWN_ID):
        raise JobInvalid(f"The id of an event does not begin with {OWN_ID!r}.")
    rows = yield "job_to_publish", (lease.job_id,)
    if not rows:
        raise JobDoesNotExist(lease.job_id)
    job = _Published(rows[0])
    # Looked for under the job's lock, or a repetition could miss what the first call is about to write.
    for row in (yield "event_by_id", (job.position, event_id)):
        event = _event(row)
        if event.attempt != lease.attempt:
            raise LeaseLost(f"Another attempt of the job {lease.job_id} has published the event {event_id!r}.")
        return event
    if not job.runs_under(lease, tx.now_ms):
        raise LeaseLost(f"Attempt {lease.attempt} of the job {lease.job_id} is over.")
    if job.events >= job.settings.events_max:
        raise TooManyEvents(f"The job {lease.job_id} has {job.events} events, and no more are kept.")
    if job.settings.strict:
        yield "commit_strictly", ()
    written = note_event(tx, job, kind, data, event_id)
    yield "insert_event", written
    yield "save_events", (job.position, job.events)
    return JobEvent(seq=job.events, attempt=lease.attempt, kind=kind, data=data, at_ms=tx.now_ms)


class Page(NamedTuple):
    """Which events a reader asks for."""

    job_id: str
    after: int
    limit: int
    wanted: EventFilter


def read(tx: Tx, around: Surroundings, page: Page) -> Script[Events]:
    """Read a stretch of a job's events."""
    rows = yield "job_with_events", (page.job_id,)
    if not rows:
        raise JobDoesNotExist(page.job_id)
    position, state, last = rows[0]
    # Up to the last that there was when the state was read: that of a terminal event must not come before it. Numbers
    # have no gaps, so this also bounds how many are looked at.
    until = max(page.after, min(last, page.after + around.limits.list_rows_max))
    wanted = page.wanted
    kinds = listed(wanted.kinds) if wanted.kinds else None
    conditions = (page.limit, kinds, *instants(tx, wanted.from_ms, wanted.before_ms))
    if page.limit * around.limits.event_bytes_max > PAGE_BYTES_MAX:
        sizes = yield "event_sizes", (position, page.after, until, *conditions)
        until = _until_full(sizes) or until
    events = [_event(row) for row in (yield "events_after", (position, page.after, until, *conditions))]
    reached = events[-1].seq if len(events) == page.limit else until
    return Events(events, JobState(state), reached >= last, reached)


def _until_full(sizes: list[Row]) -> int | None:
    """Return the number of the event that fills a page up, if there is one."""
    left = PAGE_BYTES_MAX
    for seq, size in sizes:
        left -= size
        if left <= 0:
            return int(seq)
    return None


def _event(row: Row) -> JobEvent:
    seq, attempt, kind, data, at_ms = row
    return JobEvent(seq=seq, attempt=attempt, kind=kind, data=data, at_ms=at_ms)
