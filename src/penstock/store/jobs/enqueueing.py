"""Enqueueing: which drafts become jobs, and which stand for jobs that are there already or have to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import TERMINAL, WAITING, JobState, OnDuplicate
from penstock.domain.job_errors import (
    IdempotencyKeyBusy,
    IdempotencyKeyNeeded,
    IdempotencyKeyReused,
    JobError,
    JobExists,
    JobQueueDoesNotExist,
    JobRefused,
    TooMany,
)
from penstock.domain.job_request import digest_job
from penstock.domain.limits import REPEAT_WINDOW_MS, SECOND_MS
from penstock.store.job_port import ENQUEUED, Enqueued
from penstock.store.jobs.gates import GATED, READY, gate_of
from penstock.store.jobs.lanes import LaneName, LaneRecord, name_of, open_lanes, save_lanes
from penstock.store.jobs.rates import Buckets, lock_buckets
from penstock.store.jobs.replacing import Replaceable, lock_replaceable, stretches
from penstock.store.jobs.rows import JobOptions, encode_options, rank_of
from penstock.store.jobs.script import Overtaken, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.domain.job import JobDraft, Lane
    from penstock.domain.job_queue import JobQueue
    from penstock.store.jobs.script import Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

QUEUE_FULL_MS = SECOND_MS
"""When to try again at a full queue: nobody knows how soon there will be room."""

COMPARED_AT_ONCE = 16
"""How many jobs are read at a time to compare them with drafts that have their ids: their payloads may be large."""

_PURGED = 0
"""What `survey` tells instead of a state."""

_NewRow = tuple[
    *tuple[str, str, str, int, int, int, int | None, int | None, int, str | None, int, str | None],
    *tuple[int | None, int | None],
]
"""What `insert_jobs` takes of a job: id, task, tenant, priority, state, ready, due_at, lane_id, in_lane, unique_key,
rank, gate, expires_at, retention_ms.
"""


_UniqueKey = tuple[str, str]
"""A tenant and a unique key of it."""


class Holder(msgspec.Struct, frozen=True, gc=False):
    """The job that a key stands for; its state is not known if it is one of the same call."""

    job_id: str
    state: JobState | None
    fingerprint: bytes = b""
    expires_at_ms: int | None = None
    """When it expires, if it has not started."""


Written = dict[str, str | None]
"""By the ids of jobs that were stored, those of the jobs that they replaced."""


def enqueue(
    tx: Tx,
    around: Surroundings,
    queue: JobQueue,
    drafts: Sequence[JobDraft],
    *,
    written: Written | None = None,
    bounded: bool = True,
) -> Script[list[Enqueued | JobError]]:
    """Store jobs. Not `bounded`, as when a schedule fires, neither the bound nor rates apply, and no key is needed.

    `written` is kept by the caller, so that a run that finds what an earlier run of the same call has stored answers as
    the first time.
    """
    written = {} if written is None else written
    answers: list[Enqueued | JobError] = []
    for stretch in stretches(drafts):
        intake = _Intake(tx, around, queue, stretch, written, bounded=bounded)
        answers += yield from intake.run()
    gone = {answer.replaced for answer in answers if isinstance(answer, Enqueued)}
    return [
        msgspec.structs.replace(answer, state=JobState.CANCELLED)
        if isinstance(answer, Enqueued) and answer.job_id in gone
        else answer
        for answer in answers
    ]


class _Intake:
    """One stretch of drafts: each is judged, in order, then what is new is written."""

    def __init__(
        self,
        tx: Tx,
        around: Surroundings,
        queue: JobQueue,
        drafts: Sequence[JobDraft],
        written: Written,
        *,
        bounded: bool,
    ) -> None:
        self._tx = tx
        self._around = around
        self._replaced: dict[str, str] = {}
        """By the ids of new jobs, those of the jobs that they replace."""
        self._replaceable = Replaceable()
        self._queue = queue
        self._drafts = drafts
        self._bounded = bounded
        self._written = written
        self._room = queue.settings.depth_max
        self._there: dict[str, JobState] = {}
        self._answers: dict[int, Enqueued | JobError] = {}
        self._new: dict[str, int] = {}
        """By id, the places among the drafts of those that become jobs."""
        self._ours = {draft.id for draft in drafts}
        self._instead: dict[str, Holder] = {}
        """By the ids of drafts that others were quicker with: the jobs of those."""
        self._by_key: dict[bytes, Holder] = {}
        self._by_unique_key: dict[_UniqueKey, Holder] = {}
        self._keys: dict[bytes, tuple[int, str]] = {}
        """By key, the draft that brings it, and the id of the job it is to stand for."""

    def run(self) -> Script[list[Enqueued | JobError]]:
        """Judge and write."""
        left = yield from self._survey()
        # Buckets, then lanes, then jobs: in this order all who enqueue lock them, whether they replace or not.
        buckets = yield from self._lock_buckets(left)
        yield from self._lock_replaceable(left)
        # What expired, and what an earlier stretch of the same call did, is counted, but not yet written.
        self._room -= sum(self._tx.counted.get((self._queue.id, int(state)), 0) for state in WAITING)
        self._judge(buckets)
        if self._keys:
            yield from self._take_keys()
        if self._new:
            yield from self._insert()
        if self._new and self._bounded:
            buckets.start_over(self._drafts[place].tenant for place in self._new.values())
            yield from buckets.save(self._queue.id)
        return [self._answer(place) for place in range(len(self._drafts))]

    # -- judging ----------------------------------------------------------------------------------

    def _survey(self) -> Script[list[JobDraft]]:
        """Find out what is there, and return the drafts that no job has the id of."""
        if self._queue.settings.strict:
            yield "lock_queue", (self._queue.id,)
            yield "commit_strictly", ()
        elif sum(draft.unique_key is not None for draft in self._drafts) > 1:
            yield "take_turns", (self._queue.id,)
        depth = yield from self._find_ids(self._drafts)
        if depth is None:
            raise JobQueueDoesNotExist(f"There is no job queue {self._queue.name!r} any more.")
        self._room -= depth
        left = [draft for draft in self._drafts if draft.id not in self._there]
        keys = {draft.idempotency_key for draft in left if draft.idempotency_key is not None}
        if keys:
            yield from self._find_keys(keys)
        self._by_unique_key = yield from self._find_unique(left)
        return left

    def _lock_buckets(self, drafts: list[JobDraft]) -> Script[Buckets]:
        settings = self._queue.settings
        if not drafts or not self._bounded:
            return Buckets(settings, self._tx.now_ms, {})
        return (yield from lock_buckets(self._tx, self._queue.id, settings, [draft.tenant for draft in drafts]))

    def _lock_replaceable(self, drafts: list[JobDraft]) -> Script[None]:
        """Lock the jobs that drafts are to replace, and those that have expired, and see again where they are."""
        wanted = {_unique_key(draft) for draft in drafts if draft.on_duplicate is OnDuplicate.REPLACE}
        found = {
            key: holder.job_id
            for key, holder in self._by_unique_key.items()
            if key in wanted or (holder.expires_at_ms is not None and holder.expires_at_ms <= self._tx.now_ms)
        }
        lanes = self._wanted_lanes(drafts) if found else []
        if lanes:
            # All lanes at once: the jobs that make way are in some, the new ones may be in others.
            rows = yield "lanes_of_jobs", (listed(found.values()),)
            lanes += [(LaneName(*name), width) for *name, width in rows]
            yield from open_lanes(self._queue.id, lanes)
        self._replaceable = yield from lock_replaceable(self._tx, self._around, sorted(found.values()))
        for key, job_id in found.items():
            state = self._replaceable.state(job_id)
            if state is None or state in TERMINAL:
                del self._by_unique_key[key]
            else:
                self._by_unique_key[key] = Holder(job_id, state)

    def _find_ids(self, drafts: Iterable[JobDraft]) -> Script[int | None]:
        """Find the jobs that have the ids of these drafts, refuse the drafts that mean other jobs, and return how many
        jobs wait in the queue; None: there is no such queue.
        """
        depth = None
        there: list[str] = []
        purged: list[str] = []
        ids = listed(draft.id for draft in drafts)
        for job_id, state, number in (yield "survey", (self._queue.id, ids, self._tx.now_ms)):
            if not job_id:
                depth = number
            elif state == _PURGED:
                self._there[job_id] = JobState.CANCELLED
                purged.append(job_id)
            else:
                self._there[job_id] = JobState(state)
                there.append(job_id)
        found: dict[str, bytes] = dict((yield "spent", (listed(purged), self._tx.now_ms))) if purged else {}
        for first in range(0, len(there), COMPARED_AT_ONCE):
            rows = yield "jobs_with_ids", (listed(there[first : first + COMPARED_AT_ONCE]),)
            found |= {job_id: digest_job(*what) for job_id, *what, _ in rows}
        for place, draft in enumerate(self._drafts if found else ()):
            if draft.id in found and found[draft.id] != self._digest(draft):
                self._answers[place] = JobExists()
        return depth

    def _digest(self, draft: JobDraft) -> bytes:
        return digest_job(self._queue.name, draft.task, draft.tenant, draft.payload)

    def _find_keys(self, keys: Iterable[bytes]) -> Script[None]:
        arguments = (self._queue.id, listed(key.hex() for key in keys), self._tx.now_ms)
        for key, fingerprint, job_id, state in (yield "known_keys", arguments):
            if state is None:
                # The job was finished and removed before its key expired.
                yield "drop_key", (self._queue.id, key, job_id)
            else:
                self._by_key[bytes(key)] = Holder(job_id, JobState(state), bytes(fingerprint))

    def _find_unique(self, drafts: Iterable[JobDraft]) -> Script[dict[_UniqueKey, Holder]]:
        """Find the unfinished jobs that have the unique keys of these drafts."""
        keys = {key for draft in drafts if (key := _unique_key(draft)) is not None}
        rows = (yield "unique_jobs", (self._queue.id, listed(keys))) if keys else []
        return {
            (tenant, key): Holder(job_id, JobState(state), expires_at_ms=expires_at_ms)
            for tenant, key, job_id, state, expires_at_ms in rows
        }

    def _judge(self, buckets: Buckets) -> None:
        for place, draft in enumerate(self._drafts):
            if draft.id in self._there:
                continue
            first = self._new.get(draft.id)
            if first is not None:
                same = self._digest(draft) == self._digest(self._drafts[first])
                self._answers[place] = Enqueued(draft.id, JobState.QUEUED, new=False) if same else JobExists()
                continue
            held = self._held(draft)
            replaced: Holder | None = None
            if draft.on_duplicate is OnDuplicate.REPLACE and held is not None and self._replaceable.waits(held.job_id):
                # It makes way, and room.
                held, replaced = None, held
                self._room += 1
            answer = self._known(place, draft, held) or self._refusal(draft, buckets)
            if answer is not None:
                self._room -= replaced is not None
                self._answers[place] = answer
                continue
            self._room -= 1
            self._new[draft.id] = place
            if replaced is not None:
                self._replaced[draft.id] = replaced.job_id
            if draft.idempotency_key is not None:
                self._by_key[draft.idempotency_key] = Holder(draft.id, None, draft.fingerprint)
                self._keys[draft.idempotency_key] = (place, draft.id)
            unique_key = _unique_key(draft)
            if unique_key is not None:
                self._by_unique_key[unique_key] = Holder(draft.id, None)

    def _held(self, draft: JobDraft) -> Holder | None:
        """Find the job that has the unique key of a draft."""
        unique_key = _unique_key(draft)
        return None if unique_key is None else self._by_unique_key.get(unique_key)

    def _known(self, place: int, draft: JobDraft, holder: Holder | None) -> Enqueued | JobError | None:
        """Answer for a draft that stands for a job that is there already, or cannot be judged without a key."""
        key = draft.idempotency_key
        if key is not None and key in self._by_key:
            return _replayed(self._by_key[key], draft)
        if key is None and self._bounded and self._queue.settings.strict:
            return IdempotencyKeyNeeded(f"The queue {self._queue.name!r} takes no job without an idempotency key.")
        if holder is None:
            return None
        if key is not None:
            # From now on the key stands for that job, whatever becomes of it.
            self._by_key[key] = Holder(holder.job_id, holder.state, draft.fingerprint)
            self._keys[key] = (place, holder.job_id)
        return _found(holder, by_unique_key=True)

    def _refusal(self, draft: JobDraft, buckets: Buckets) -> JobError | None:
        if not self._bounded:
            return None
        if self._room <= 0:
            depth_max = self._queue.settings.depth_max
            return JobRefused(f"{depth_max} jobs or more wait in the queue already.", TooMany.QUEUE_FULL, QUEUE_FULL_MS)
        return buckets.refusal(draft.tenant)

    # -- writing ----------------------------------------------------------------------------------

    def _take_keys(self) -> Script[None]:
        """Write the keys; a draft whose key somebody else wrote meanwhile stands for that one's job."""
        now_ms = self._tx.now_ms
        rows = [
            (key.hex(), job_id, self._drafts[place].fingerprint.hex()) for key, (place, job_id) in self._keys.items()
        ]
        expires_at_ms = now_ms + max(self._queue.settings.key_ttl_ms, REPEAT_WINDOW_MS)
        written = yield "insert_keys", (self._queue.id, listed(sorted(rows)), expires_at_ms, now_ms)
        lost = set(self._keys) - {bytes(row[0]) for row in written}
        if not lost:
            return
        for key in lost:
            del self._by_key[key]
        yield from self._find_keys(lost)
        for key in lost:
            if key not in self._by_key:
                raise Overtaken(f"The job of a key in queue {self._queue.name!r} was removed meanwhile.")
            place, _ = self._keys.pop(key)
            draft = self._drafts[place]
            answer = _replayed(self._by_key[key], draft)
            self._replace(draft, place, self._by_key[key], answer)
            yield from self._repoint(draft.id, self._by_key[key] if isinstance(answer, Enqueued) else None)

    def _repoint(self, job_id: str, holder: Holder | None) -> Script[None]:
        """Have the keys that were to stand for a draft's job stand for the one that is there instead, if any is."""
        for key, (place, meant) in list(self._keys.items()):
            if meant != job_id:
                continue
            if holder is None:
                yield "drop_key", (self._queue.id, key, job_id)
                del self._keys[key]
            else:
                yield "repoint_key", (self._queue.id, key, holder.job_id)
                self._keys[key] = (place, holder.job_id)

    def _replace(self, draft: JobDraft, place: int, holder: Holder, answer: Enqueued | JobError) -> None:
        """Note that a draft does not become a job after all, and what stands in for it."""
        if self._new.pop(draft.id, None) is not None and isinstance(answer, Enqueued):
            self._instead[draft.id] = holder
        self._answers[place] = answer

    def _insert(self) -> Script[None]:
        """Write the jobs, after their lanes are locked: so the order of a lane is that of its jobs' positions."""
        drafts = [self._drafts[place] for place in self._new.values()]
        yield from self._replaceable.cancel(
            (draft.id, self._replaced[draft.id]) for draft in drafts if draft.id in self._replaced
        )
        wanted = self._wanted_lanes(drafts)
        lanes = (yield from open_lanes(self._queue.id, wanted)) if wanted else {}
        rows = {draft.id: self._row(draft, lanes) for draft in drafts}
        inserted = yield "insert_jobs", (self._queue.id, listed(rows.values()), self._tx.now_ms)
        positions: dict[str, int] = dict(inserted)
        contents: list[Sequence[object]] = []
        tags: list[Sequence[object]] = []
        for draft in drafts:
            position = positions.get(draft.id)
            if position is None:
                continue
            contents.append((position, draft.payload, _options(draft, self._lane(draft), rows[draft.id][11])))
            tags += [(tag, position) for tag in dict.fromkeys(draft.tags)]
            state = JobState(rows[draft.id][4])
            self._tx.count(self._queue.id, state, 1)
            self._tx.note(ENQUEUED)
            if rows[draft.id][5] or state is JobState.SCHEDULED:
                self._tx.wake(self._queue.id)
            self._there[draft.id] = state
            self._written[draft.id] = self._replaced.get(draft.id)
        missing = [draft for draft in drafts if draft.id not in positions]
        for draft in missing:
            lane = self._record(draft, lanes)
            if lane is not None:
                lane.leave(finished=True, in_lane=bool(rows[draft.id][8]))
        if contents:
            yield "insert_content", contents
        if tags:
            yield "insert_tag", tags
        members = _member_rows([draft for draft in drafts if draft.id in positions])
        if members:
            yield "insert_member", members
        yield from save_lanes(self._tx, lanes.values())
        if missing:
            yield from self._resolve(missing)

    def _lane(self, draft: JobDraft) -> Lane | None:
        """The lane of a draft: its tenant's, or where the queue says so, the one that all tenants share."""
        lane = draft.lane
        if lane is None or lane.ordered:
            return lane
        setting = self._queue.settings.lanes.get(lane.key)
        return msgspec.structs.replace(lane, shared=setting is not None and setting.shared)

    def _wanted_lanes(self, drafts: Iterable[JobDraft]) -> list[tuple[LaneName, int]]:
        """The names and widths of the lanes of drafts, as `open_lanes` takes them."""
        return [(name_of(own, draft.tenant), own.width) for draft in drafts if (own := self._lane(draft)) is not None]

    def _record(self, draft: JobDraft, lanes: dict[LaneName, LaneRecord]) -> LaneRecord | None:
        lane = self._lane(draft)
        return None if lane is None else lanes[name_of(lane, draft.tenant)]

    def _row(self, draft: JobDraft, lanes: dict[LaneName, LaneRecord]) -> _NewRow:
        """What becomes of a draft: it is due or not, and has a place in its lane or not."""
        now_ms = self._tx.now_ms
        if draft.delay_ms or draft.run_at_ms is None:
            due_at_ms = now_ms + draft.delay_ms
        else:
            due_at_ms = draft.run_at_ms + self._tx.ahead_ms
        due = due_at_ms <= now_ms
        expires_at_ms = None if draft.expires_in_ms is None else now_ms + draft.expires_in_ms
        next_at_ms = expires_at_ms
        if not due:
            # Its instant was compared with a node's clock, which may differ from the store's.
            next_at_ms = due_at_ms if expires_at_ms is None else min(due_at_ms, expires_at_ms)
        lane = self._record(draft, lanes)
        in_lane = False
        if lane is not None:
            if due or lane.ordered:
                in_lane = lane.join()
            else:
                lane.expect()
        gate = gate_of(draft, self._queue.settings)
        ready = 0
        if due and (lane is None or in_lane):
            ready = READY if gate is None else GATED
        if ready == GATED and gate is not None:
            self._tx.gates.add((self._queue.id, gate))
        return (
            draft.id,
            draft.task,
            draft.tenant,
            draft.priority,
            int(JobState.QUEUED if due else JobState.SCHEDULED),
            ready,
            next_at_ms,
            None if lane is None else lane.id,
            int(in_lane),
            draft.unique_key,
            rank_of(draft.priority, now_ms, self._queue.settings),
            gate,
            expires_at_ms,
            # Who repeats a call whose answer was lost has to find the job that it was about.
            None if draft.retention_ms is None else max(draft.retention_ms, REPEAT_WINDOW_MS),
        )

    def _resolve(self, missing: list[JobDraft]) -> Script[None]:
        """Find the jobs that somebody else wrote meanwhile with the same id or unique key."""
        if any(draft.id in self._replaced for draft in missing):
            raise Overtaken("A job was cancelled to make way for one whose id is another's.")
        yield from self._find_ids(missing)
        found = yield from self._find_unique(missing)
        for draft in missing:
            if draft.id in self._there:
                if self._new.pop(draft.id) in self._answers:
                    # It is another job's, which no key of this call may stand for.
                    del self._there[draft.id]
                    yield from self._repoint(draft.id, None)
                continue
            unique_key = _unique_key(draft)
            holder = None if unique_key is None else found.get(unique_key)
            if holder is None:
                raise Overtaken(f"The job with the unique key of {draft.id} was finished meanwhile.")
            if draft.on_duplicate is OnDuplicate.REPLACE and holder.state in WAITING:
                raise Overtaken(f"A job that {draft.id} is to replace was enqueued meanwhile.")
            self._replace(draft, self._new[draft.id], holder, _found(holder, by_unique_key=True))
            yield from self._repoint(draft.id, holder)

    def _answer(self, place: int) -> Enqueued | JobError:
        draft = self._drafts[place]
        answer = self._answers.get(place)
        if answer is None:
            new = draft.id in self._written
            return Enqueued(draft.id, self._there[draft.id], new=new, replaced=self._written.get(draft.id))
        if not isinstance(answer, Enqueued) or answer.job_id not in self._ours:
            return answer
        # It stands for another draft of this call: for the job that became of that, or what stands in for it.
        if answer.job_id in self._there:
            return msgspec.structs.replace(answer, state=self._there[answer.job_id])
        holder = self._instead.get(answer.job_id)
        if holder is None or holder.state is None:
            return IdempotencyKeyBusy("Another request with this key is still being stored.")
        return msgspec.structs.replace(answer, job_id=holder.job_id, state=holder.state)


def _replayed(holder: Holder, draft: JobDraft) -> Enqueued | JobError:
    if holder.fingerprint != draft.fingerprint:
        return IdempotencyKeyReused("The idempotency key was used for another request before.")
    return _found(holder)


def _found(holder: Holder, *, by_unique_key: bool = False) -> Enqueued:
    return Enqueued(holder.job_id, holder.state or JobState.QUEUED, new=False, by_unique_key=by_unique_key)


def _unique_key(draft: JobDraft) -> _UniqueKey | None:
    return None if draft.unique_key is None else (draft.tenant, draft.unique_key)


def _member_rows(drafts: Iterable[JobDraft]) -> list[Sequence[object]]:
    """What `insert_member` takes of those that are members of a gather."""
    return [(draft.member.gather_id, draft.member.index, draft.id) for draft in drafts if draft.member is not None]


def _options(draft: JobDraft, lane: Lane | None, gate: str | None) -> bytes:
    options = JobOptions(
        timeout_ms=draft.timeout_ms,
        retry=draft.retry,
        lane=lane,
        tags=draft.tags,
        trace=draft.trace,
        correlation_id=draft.correlation_id,
        start_rate=draft.start_rate,
        gate=gate,
        member=draft.member,
        gathered=draft.gathered,
    )
    return encode_options(options)
