"""What happens to jobs: each step of their lives, and how all steps of one transaction are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import EXPIRED, TRANSITIONS, AttemptOutcome, Failure, JobState, Move
from penstock.domain.retry import backoff_ms
from penstock.store.job_port import FAILED_FOR_NOW, FAILED_PERMANENTLY, TIMED_OUT, Reported
from penstock.store.jobs.breakers import Breakers
from penstock.store.jobs.events import note_event
from penstock.store.jobs.gates import GATED, READY
from penstock.store.jobs.lanes import LaneRecord, lock_lanes_of, save_lanes
from penstock.store.jobs.rows import NOTHING, JobRecord, encode_failure, rank_of
from penstock.store.jobs.script import Overtaken, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.store.jobs.events import EventRow
    from penstock.store.jobs.script import Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

LOST = "lost"
TIMEOUT = "timeout"
"""The kinds of failures that no worker tells of."""

_EXCERPT_CHARACTERS = 1_000
"""How much of a failure's message is in the event that tells of it."""

_encode_json = msgspec.json.Encoder().encode


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What ended an attempt and what was answered, kept with the attempt for the repetition of the report."""

    verb: str
    reported: Reported


encode_answer = msgspec.msgpack.Encoder().encode


class Changes:
    """The changes that one transaction makes to jobs whose rows, and lanes, it has locked."""

    def __init__(self, tx: Tx, around: Surroundings, lanes: dict[int, LaneRecord]) -> None:
        self._tx = tx
        self._around = around
        self._lanes = lanes
        self._jobs: dict[int, JobRecord] = {}
        self._started: list[Sequence[object]] = []
        self._ended: list[Sequence[object]] = []
        self._results: list[Sequence[object]] = []
        self._failures: list[Sequence[object]] = []
        self._forgotten_expiries: list[Sequence[object]] = []
        self._events: list[EventRow] = []
        self._breakers = Breakers()
        self.answers: dict[tuple[int, int], Answered] = {}
        """By position and fence: the reports that ended an attempt in this transaction."""

    # -- what a worker does -----------------------------------------------------------------------

    def accept(self, job: JobRecord) -> None:
        """An attempt begins."""
        self._move(job, Move.ACCEPT)
        now_ms = self._tx.now_ms
        job.attempts += 1
        job.times_out_at = now_ms + job.timeout_ms
        job.due_at = min(now_ms + job.settings.lease_ms, job.times_out_at)
        self._started.append((job.position, job.fence, job.attempts, job.worker, now_ms))

    def extend(self, job: JobRecord) -> None:
        """The worker is alive."""
        assert job.state is JobState.RUNNING
        assert job.times_out_at is not None
        job.due_at = min(self._tx.now_ms + job.settings.lease_ms, job.times_out_at)
        self._jobs[job.position] = job

    def publish(self, job: JobRecord, event_id: str, kind: str, data: bytes) -> None:
        """The worker publishes an event."""
        self._events.append(note_event(self._tx, job, kind, data, event_id))
        self._jobs[job.position] = job

    def complete(self, job: JobRecord, result: bytes) -> None:
        """The attempt succeeded."""
        self._move(job, Move.COMPLETE)
        self._finish(job)
        if result != NOTHING:
            self._results.append((job.position, result))
        self._breakers.note(job, succeeded=True)
        self._tell(job, "job.succeeded")
        self._end_attempt(job, AttemptOutcome.SUCCEEDED, "Complete")

    def fail(self, job: JobRecord, failure: Failure) -> None:
        """The attempt failed, as its worker tells."""
        self._tx.note(FAILED_PERMANENTLY if failure.permanent else FAILED_FOR_NOW)
        job.failures += 1
        self._note_failure(job, failure)
        if not failure.permanent:
            self._breakers.note(job, succeeded=False)
        if job.cancel_requested:
            self._cancel_attempt(job, "Fail", failure)
            return
        if failure.permanent or job.failures >= job.retry.attempts_max:
            self._die(job, Move.FAIL_FOR_GOOD, failure)
        else:
            self._try_later(job, Move.FAIL, "job.failed", job.failures, failure)
        self._end_attempt(job, AttemptOutcome.FAILED, "Fail", failure)

    def release(self, job: JobRecord) -> None:
        """The worker gives it back: an offer that it declines, or an attempt that it breaks off."""
        if job.state is JobState.OFFERED:
            self.give_back(job)
        elif job.cancel_requested:
            self._cancel_attempt(job, "Release")
        else:
            self._move(job, Move.RELEASE)
            self._reorder(job)
            self._queue(job)
            self._tell(job, "job.released")
            self._end_attempt(job, AttemptOutcome.RELEASED, "Release")

    def snooze(self, job: JobRecord, delay_ms: int) -> None:
        """The worker puts it off."""
        if job.cancel_requested:
            self._cancel_attempt(job, "Snooze")
            return
        self._move(job, Move.SNOOZE)
        self._wait(job, self._tx.now_ms + delay_ms)
        self._tell(job, "job.snoozed", {"due_at_ms": job.due_at})
        self._end_attempt(job, AttemptOutcome.SNOOZED, "Snooze")

    # -- what comes due ---------------------------------------------------------------------------

    def come_due(self, job: JobRecord) -> None:
        """A delay or a backoff is over."""
        self._move(job, Move.COME_DUE)
        self._line_up(job)
        self._queue(job)

    def expire(self, job: JobRecord) -> None:
        """It has not started, and it is too late for that."""
        if job.state is JobState.OFFERED:
            self._refund(job)
        assert job.expires_at is not None
        within_ms = job.expires_at - job.enqueued_at
        self._note_failure(job, Failure(kind=EXPIRED, message=f"The job did not start within {within_ms} ms."))
        self._move(job, Move.EXPIRE)
        self._finish(job)
        self._tell(job, "job.cancelled", {"reason": "expired"})

    def unpark(self, job: JobRecord) -> None:
        """Its breaker may let it pass."""
        assert job.state is JobState.QUEUED
        assert job.lane_id is None or job.in_lane
        self._queue(job)

    def give_back(self, job: JobRecord) -> None:
        """Its offer is over."""
        self._refund(job)
        self._move(job, Move.RETURN)
        self._reorder(job)
        self._queue(job)

    def lose(self, job: JobRecord) -> None:
        """Its lease lapsed."""
        failure = Failure(kind=LOST, message=f"The lease of worker {job.worker!r} lapsed.")
        job.losses += 1
        self._note_failure(job, failure)
        if job.cancel_requested:
            self._cancel_attempt(job, None, failure)
            return
        # Nobody knows what the attempt did: on a strict queue somebody has to decide that it runs again.
        if job.settings.strict or job.losses >= job.retry.losses_max:
            self._die(job, Move.LOSE_FOR_GOOD, failure)
        else:
            self._try_later(job, Move.LOSE, "job.lost", job.losses, failure)
        self._end_attempt(job, AttemptOutcome.LOST, None, failure)

    def time_out(self, job: JobRecord) -> None:
        """Its attempt ran for too long."""
        failure = Failure(kind=TIMEOUT, message=f"The attempt ran for more than {job.timeout_ms} ms.")
        self._tx.note(TIMED_OUT)
        job.failures += 1
        self._note_failure(job, failure)
        self._breakers.note(job, succeeded=False)
        if job.cancel_requested:
            self._cancel_attempt(job, None, failure)
            return
        if job.settings.strict or job.failures >= job.retry.attempts_max:
            self._die(job, Move.FAIL_FOR_GOOD, failure)
        else:
            self._try_later(job, Move.FAIL, "job.timed_out", job.failures, failure)
        self._end_attempt(job, AttemptOutcome.TIMED_OUT, None, failure)

    # -- what somebody asks for -------------------------------------------------------------------

    def cancel(self, job: JobRecord, event_id: str | None = None, data: dict[str, object] | None = None) -> None:
        """Cancel it at once, or ask its worker to stop. `data` goes into the event."""
        if job.state is JobState.RUNNING:
            job.cancel_requested = 1
            self._jobs[job.position] = job
            self._tell(job, "job.cancel_requested", event_id=event_id)
            return
        if job.state is JobState.OFFERED:
            self._refund(job)
        self._move(job, Move.CANCEL)
        self._finish(job)
        self._tell(job, "job.cancelled", data, event_id)

    def retry(self, job: JobRecord, event_id: str | None = None) -> None:
        """Queue it again: with fresh budgets, and for as long as it takes, if it was finished. Its lane is locked."""
        if job.finished_at is not None:
            self._note_end(job, undone=True)
            job.finished_at = None
            job.failures = job.losses = job.cancel_requested = 0
            self._forget_expiry(job)
            if job.lane_id is not None:
                self._lanes[job.lane_id].expect()
                self._reorder(job)
        self._move(job, Move.RETRY)
        self._line_up(job)
        self._queue(job)
        self._tell(job, "job.retried", event_id=event_id)

    def forget(self, job: JobRecord) -> None:
        """Take a waiting job, whose rows the caller removes after `save`, out of its lane and its queue's counts."""
        self._tx.count(job.queue_id, job.state, -1)
        if job.lane_id is not None:
            self._lanes[job.lane_id].leave(finished=True, in_lane=bool(job.in_lane))
            job.in_lane = 0
        job.ready, job.due_at, job.finished_at = 0, None, self._tx.now_ms
        self._note_end(job)
        self._jobs[job.position] = job

    def enter_lane(self, job: JobRecord, lane: LaneRecord) -> None:
        """Note the lane, made anew, that a finished job comes back to."""
        job.lane_id = lane.id
        self._lanes.setdefault(lane.id, lane)

    def has_lane(self, job: JobRecord) -> bool:
        """Tell whether the job's lane is locked, or it has none; not so if it was finished and its lane removed."""
        return job.lane_id is None or job.lane_id in self._lanes

    def reported(self, job: JobRecord) -> Reported:
        """Say where a job is, as its worker is told."""
        lease_ms = None
        if job.state is JobState.RUNNING and job.due_at is not None:
            lease_ms = job.due_at - self._tx.now_ms
        # A job that is queued is due, and has an instant only if it expires.
        until_ms = None if job.state is JobState.QUEUED else job.due_at
        return Reported(job.state, until_ms, bool(job.cancel_requested), job.attempts, lease_ms)

    # -- writing ----------------------------------------------------------------------------------

    def save(self) -> Script[None]:
        """Write everything."""
        if any(job.settings.strict for job in self._jobs.values()):
            yield "commit_strictly", ()
        for name, rows in (
            ("start_attempt", self._started),
            ("end_attempt", self._ended),
            ("save_result", self._results),
            ("save_failure", self._failures),
            ("forget_expiry", self._forgotten_expiries),
            ("insert_event", self._events),
        ):
            if rows:
                yield name, rows
        if self._jobs:
            yield "save_job", [(*_columns(job), self._tx.now_ms, job.rank) for job in self._jobs.values()]
        yield from save_lanes(self._tx, self._lanes.values())
        yield from self._breakers.save(self._tx)

    # -- the steps --------------------------------------------------------------------------------

    def _move(self, job: JobRecord, how: Move) -> None:
        after = TRANSITIONS[job.state, how]
        self._tx.moved(job.queue_id, job.state, after)
        self._tx.note(how)
        job.state = after
        self._jobs[job.position] = job

    def _queue(self, job: JobRecord) -> None:
        """It is due: it may be offered, if it has its place, or else waits for one."""
        job.due_at, job.times_out_at = job.expiry, None
        job.worker = ""
        if job.lane_id is None or job.in_lane:
            job.ready = READY
            if job.options.gate is not None:
                job.ready = GATED
                self._tx.gates.add((job.queue_id, job.options.gate))
            self._tx.wake(job.queue_id)
        else:
            self._lanes[job.lane_id].changed = True
        self._jobs[job.position] = job

    def _refund(self, job: JobRecord) -> None:
        """It is offered and does not start: others may start instead."""
        if job.options.gate is not None:
            assert job.due_at is not None
            self._tx.refund(job.queue_id, job.options.gate, job.due_at)
            self._tx.wake(job.queue_id)

    def _line_up(self, job: JobRecord) -> None:
        """Give it a new place in line. What is only given back, offered or running, keeps the place it had."""
        due_at_ms = self._tx.now_ms if job.due_at is None else min(job.due_at, self._tx.now_ms)
        job.rank = rank_of(job.priority, due_at_ms, job.settings)

    def _wait(self, job: JobRecord, due_at_ms: int) -> None:
        """It is not due before that; in an ordered lane it keeps its place, unless one before it came back."""
        job.due_at, job.times_out_at, job.ready, job.worker = due_at_ms, None, 0, ""
        if job.in_lane and not job.ordered:
            self._leave(job, finished=False)
        self._reorder(job)
        # Those who wait for jobs were told of later ones.
        self._tx.wake(job.queue_id)

    def _reorder(self, job: JobRecord) -> None:
        """It comes back, or is in flight no more: see who is first in its line."""
        if job.lane_id is not None:
            self._lanes[job.lane_id].reorder()

    def _finish(self, job: JobRecord) -> None:
        job.finished_at, job.due_at, job.times_out_at, job.ready = self._tx.now_ms, None, None, 0
        self._leave(job, finished=True)
        self._note_end(job)

    def _note_end(self, job: JobRecord, *, undone: bool = False) -> None:
        """Count a member of a gather that has ended, or comes back after all; the same for a continuation.

        One that did not succeed has failed: it is dead, cancelled, or about to be removed.
        """
        member, gathered = job.options.member, job.options.gathered
        if member is not None:
            gather = self._tx.gather(member.gather_id)
            if job.state is JobState.SUCCEEDED:
                gather.succeeded += 1
            else:
                gather.failed += -1 if undone else 1
        if gathered is not None:
            self._tx.gather(gathered).continuation_ended = not undone

    def _leave(self, job: JobRecord, *, finished: bool) -> None:
        if job.lane_id is not None:
            self._lanes[job.lane_id].leave(finished=finished, in_lane=bool(job.in_lane))
            job.in_lane = 0

    def _die(self, job: JobRecord, how: Move, failure: Failure) -> None:
        self._move(job, how)
        self._finish(job)
        self._tell(job, "job.dead", {"failure": _excerpt(failure)})

    def _try_later(self, job: JobRecord, how: Move, kind: str, number: int, failure: Failure) -> None:
        self._move(job, how)
        self._wait(job, self._tx.now_ms + backoff_ms(job.retry, number, self._around.chance, failure.retry_after_ms))
        self._tell(job, kind, {"failure": _excerpt(failure), "due_at_ms": job.due_at})

    def _cancel_attempt(self, job: JobRecord, verb: str | None, failure: Failure | None = None) -> None:
        """The attempt ended, and the job was to be cancelled."""
        self._move(job, Move.CANCEL)
        self._finish(job)
        self._tell(job, "job.cancelled")
        self._end_attempt(job, AttemptOutcome.CANCELLED, verb, failure)

    def _forget_expiry(self, job: JobRecord) -> None:
        """Somebody wants it to run after all."""
        if job.expires_at is None:
            return
        job.expires_at = None
        self._forgotten_expiries.append((job.position,))
        if job.failure_kind == EXPIRED:
            # Cancelled once more, it must not look expired.
            job.failure_kind = None
            self._failures.append((job.position, None))

    def _note_failure(self, job: JobRecord, failure: Failure) -> None:
        job.failure_kind = failure.kind
        self._failures.append((job.position, encode_failure(failure)))

    def _tell(
        self, job: JobRecord, kind: str, data: dict[str, object] | None = None, event_id: str | None = None
    ) -> None:
        self._events.append(note_event(self._tx, job, kind, _encode_json(data or {}), event_id))

    def _end_attempt(
        self, job: JobRecord, outcome: AttemptOutcome, verb: str | None, failure: Failure | None = None
    ) -> None:
        answer = None
        if verb is not None:
            answered = Answered(verb, self.reported(job))
            self.answers[job.position, job.fence] = answered
            answer = encode_answer(answered)
        self._ended.append(
            (
                job.position,
                job.fence,
                self._tx.now_ms,
                int(outcome),
                answer,
                None if failure is None else encode_failure(failure),
            )
        )


def load(tx: Tx, around: Surroundings, job_ids: Sequence[str]) -> Script[tuple[Changes, dict[str, JobRecord]]]:
    """Lock jobs, those of lanes after their lanes, and return them by their ids; unknown ids are left out."""
    rows = yield "lock_jobs", (listed(job_ids), 0)
    jobs = {row[1]: JobRecord(row) for row in rows}
    lanes: dict[int, LaneRecord] = {}
    rest = [job_id for job_id in job_ids if job_id not in jobs]
    if rest:
        lanes = yield from lock_lanes_of(rest)
        for row in (yield "lock_jobs", (listed(rest), 1)):
            job = jobs[row[1]] = JobRecord(row)
            if job.finished_at is None and job.lane_id not in lanes:
                raise Overtaken(f"Job {job.id} came back to another lane meanwhile.")
    return Changes(tx, around, lanes), jobs


def _excerpt(failure: Failure) -> dict[str, object]:
    return {"kind": failure.kind, "message": failure.message[:_EXCERPT_CHARACTERS]}


def _columns(job: JobRecord) -> Sequence[object]:
    return (
        job.position,
        int(job.state),
        job.ready,
        job.due_at,
        job.lane_id,
        job.in_lane,
        job.attempts,
        job.failures,
        job.losses,
        job.events,
        job.times_out_at,
        job.cancel_requested,
        job.failure_kind,
        job.worker,
        job.finished_at,
    )
