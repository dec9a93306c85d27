"""Scripts about gathers: opened, filled and sealed; continued in the transaction in which the last member ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.domain.gather import (
    MEMBERS_KEPT_MS,
    ErrorPolicy,
    Gather,
    GatherState,
    MemberResult,
    NewLink,
    complete,
    id_after,
)
from penstock.domain.job import JobDraft, JobState
from penstock.domain.job_errors import (
    GatherDoesNotExist,
    GatherExists,
    JobError,
    JobExists,
    JobInvalid,
    JobQueueDoesNotExist,
    JobStateConflict,
)
from penstock.domain.limits import DAY_MS
from penstock.store.job_port import Enqueued, Filled, MemberPage
from penstock.store.jobs import queues
from penstock.store.jobs.enqueueing import enqueue
from penstock.store.jobs.reading import PAGE_BYTES_MAX, within_bytes
from penstock.store.jobs.rows import NOTHING, decode_failure, job_of
from penstock.store.jobs.script import Overtaken, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.gather import NewGather, NewMember
    from penstock.domain.job_queue import JobQueue
    from penstock.store.jobs.script import GatherChange, Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

GATHERS_KEPT_MS = 7 * DAY_MS
"""How long a gather can be looked at after its members have been kept for it."""

_encode = msgspec.msgpack.Encoder().encode
_decode_draft = msgspec.msgpack.Decoder(JobDraft).decode


class _Standing(NamedTuple):
    """How a gather stands, as `change_gather` returns it."""

    state: GatherState
    on_error: ErrorPolicy
    total: int
    succeeded: int
    failed: int
    expires_at_ms: int


# -- opening and filling ------------------------------------------------------------------------------


def open_gather(
    tx: Tx, around: Surroundings, new: NewGather, members: Sequence[NewMember], *, seal: bool
) -> Script[Filled]:
    """Open a gather, or find the one of this id, and add its first members."""
    yield "take_turns_filling", (new.id,)
    yield from _keep_queues([new.queue, *(link.queue for link in new.chain), *(one.queue for one in members)])
    known = yield "gather_by_id", (new.id,)
    if known:
        if known[0][1] != new.draft.tenant or bytes(known[0][-1]) != new.fingerprint:
            raise GatherExists(f"There is another gather {new.id!r} already.")
    else:
        yield from _insert(tx, new)
    filled = yield from _fill(tx, around, new.id, members, seal=seal)
    return msgspec.structs.replace(filled, created=not known)


def _insert(tx: Tx, new: NewGather) -> Script[None]:
    """Insert a gather, and those that follow it in a chain: so their queues are kept, and they can be looked at."""
    for (job_id,) in (yield "jobs_among", (listed([new.draft.id, *(link.draft.id for link in new.chain)]),)):
        raise JobExists(f"There is a job {job_id} already.")
    if new.chain:
        for (gather_id,) in (yield "gathers_among", (listed([link.gather_id for link in new.chain]),)):
            raise GatherExists(f"There is another gather {gather_id!r} already.")
    instants = (tx.now_ms, tx.now_ms + new.expires_in_ms)
    rows: list[Sequence[object]] = []
    first = NewLink(new.id, new.queue, new.draft)
    # No request opens one that follows, so no fingerprint is theirs.
    for link, state, fingerprint in (
        (first, GatherState.OPEN, new.fingerprint),
        *((link, GatherState.PENDING, b"") for link in new.chain),
    ):
        continuation = (link.queue.id, link.queue.name, link.draft.task, _encode(link.draft))
        policy = (int(state), int(new.on_error))
        rows.append((link.gather_id, new.draft.tenant, *policy, *continuation, fingerprint, *instants))
    yield "insert_gather", rows


def fill_gather(
    tx: Tx, around: Surroundings, gather_id: str, members: Sequence[NewMember], *, seal: bool
) -> Script[Filled]:
    """Add members to a gather, and seal it if all of them are there."""
    yield "take_turns_filling", (gather_id,)
    yield from _keep_queues([one.queue for one in members])
    return (yield from _fill(tx, around, gather_id, members, seal=seal))


def _keep_queues(wanted: Sequence[JobQueue]) -> Script[None]:
    """Lock queues in order, as those who enqueue do it before all else, so that none is deleted meanwhile."""
    for _, queue in sorted({queue.id: queue for queue in wanted}.items()):
        rows = yield ("lock_queue", (queue.id,)) if queue.settings.strict else ("queue_kept", (queue.name,))
        if not rows or rows[0][0] != queue.id:
            raise JobQueueDoesNotExist(f"There is no job queue {queue.name!r} any more.")


def _fill(tx: Tx, around: Surroundings, gather_id: str, members: Sequence[NewMember], *, seal: bool) -> Script[Filled]:
    gather = yield from find(tx, gather_id)
    answers = yield from _Filling(tx, around, gather, members).run(seal=seal)
    yield from settle(tx, around)
    return Filled((yield from find(tx, gather_id)), answers)


class _Filling:
    """One call: each member is judged, then those that are new are enqueued."""

    def __init__(self, tx: Tx, around: Surroundings, gather: Gather, members: Sequence[NewMember]) -> None:
        self._tx = tx
        self._around = around
        self._gather = gather
        self._members = {_index(one): one for one in members}
        assert len(self._members) == len(members), "two members at one place"
        self._answers: dict[int, Enqueued | JobError] = {}

    def run(self, *, seal: bool) -> Script[list[Enqueued | JobError]]:
        """Judge and write; the gather itself is changed by `settle`."""
        if self._members:
            yield from self._find_known()
        new = [one for index, one in self._members.items() if index not in self._answers]
        stored = (yield from self._enqueue(new)) if new else 0
        if self._gather.state is GatherState.OPEN:
            change = self._tx.gather(self._gather.id)
            change.members += stored
            whole = all(isinstance(answer, Enqueued) for answer in self._answers.values())
            if seal and whole:
                # Where a place is missing, somebody believes that its member is there.
                [(last,)] = yield "last_place", (self._gather.id,)
                change.seal = last + 1 == self._gather.total + stored
        return [self._answers[index] for index in self._members]

    def _find_known(self) -> Script[None]:
        """Answer for those that are there already, and those that cannot be added."""
        rows = yield "members_between", (self._gather.id, min(self._members), max(self._members))
        for index, job_id, state, *job in rows:
            if index in self._members:
                same = _is_same(self._members[index], job_id, job)
                self._answers[index] = (
                    Enqueued(job_id, JobState.CANCELLED if state is None else JobState(state), new=False)
                    if same
                    else JobExists(f"Another job is at place {index} of gather {self._gather.id}.")
                )
        left = {index: one.draft.id for index, one in self._members.items() if index not in self._answers}
        taken = {job_id for (job_id,) in (yield "jobs_among", (listed(left.values()),))} if left else set()
        for index, job_id in left.items():
            if job_id in taken:
                self._answers[index] = JobExists(f"There is a job {job_id} already.")
            elif (refusal := self._refusal(index)) is not None:
                self._answers[index] = refusal

    def _refusal(self, index: int) -> JobError | None:
        if self._gather.state is not GatherState.OPEN:
            return JobStateConflict(f"Gather {self._gather.id} is {self._gather.state.label} and takes no member.")
        if index >= self._around.limits.gather_members_max:
            return JobInvalid(f"A gather has at most {self._around.limits.gather_members_max} members.", "first")
        return None

    def _enqueue(self, new: list[NewMember]) -> Script[int]:
        """Enqueue members, the queues in order, and return how many are stored."""
        by_queue: dict[int, tuple[JobQueue, list[NewMember]]] = {}
        for one in new:
            by_queue.setdefault(one.queue.id, (one.queue, []))[1].append(one)
        for _, (queue, own) in sorted(by_queue.items()):
            answers = yield from enqueue(self._tx, self._around, queue, [one.draft for one in own])
            self._answers.update(zip(map(_index, own), answers, strict=True))
        rows = yield "member_ids", (self._gather.id, min(map(_index, new)), max(map(_index, new)))
        there = dict(rows)
        stored = 0
        for one in new:
            index = _index(one)
            answer = self._answers[index]
            if there.get(index) == one.draft.id:
                stored += 1
            elif isinstance(answer, Enqueued):
                # Its key stands for another job, or somebody else has just stored one of this id.
                self._answers[index] = JobExists(f"Job {answer.job_id} is there already and cannot become a member.")
        return stored


def _index(member: NewMember) -> int:
    assert member.draft.member is not None
    return member.draft.member.index


def _is_same(member: NewMember, job_id: str, job: Sequence[object]) -> bool:
    """Return whether a member is the job at its place. Of a job that is gone only the id is known."""
    if member.draft.id != job_id:
        return False
    queue_id, task, payload = job
    return queue_id is None or (queue_id, task, payload) == (member.queue.id, member.draft.task, member.draft.payload)


# -- ending -------------------------------------------------------------------------------------------


def settle(tx: Tx, around: Surroundings) -> Script[None]:
    """Write what was noted about gathers, and enqueue the continuations of those that are complete by that."""
    complete_ids: list[str] = []
    for gather_id, change in sorted(tx.gathers.items()):
        standing = yield from _change(tx, gather_id, change)
        if standing is not None and _is_complete(standing, tx.now_ms):
            complete_ids.append(gather_id)
    tx.gathers.clear()
    for gather_id in complete_ids:
        yield from _continue(tx, around, gather_id)


def _change(tx: Tx, gather_id: str, change: GatherChange) -> Script[_Standing | None]:
    ended = change.continuation_ended
    arguments = (
        gather_id,
        change.members,
        change.succeeded,
        change.failed,
        int(change.seal),
        int(ended is not None),
        tx.now_ms + MEMBERS_KEPT_MS if ended else None,
    )
    rows = yield "change_gather", arguments
    if not rows:
        # It was removed long after it had ended.
        return None
    state, on_error, *numbers = rows[0]
    standing = _Standing(GatherState(state), ErrorPolicy(on_error), *numbers)
    if (change.members or change.seal) and standing.state not in (GatherState.OPEN, GatherState.WAITING):
        raise Overtaken(f"Gather {gather_id} has ended meanwhile.")
    return standing


def _is_complete(standing: _Standing, now_ms: int) -> bool:
    return (
        standing.state is GatherState.WAITING
        and standing.expires_at_ms > now_ms
        and complete(standing.on_error, total=standing.total, succeeded=standing.succeeded, failed=standing.failed)
    )


def _continue(tx: Tx, around: Surroundings, gather_id: str) -> Script[None]:
    """Enqueue the continuation. The gather's row is ours until the commit, and it is done then: so nobody else does.

    In a chain, the gather that follows gets its member and begins to wait.
    """
    yield "wait_briefly", ()
    [(queue_id, draft_column)] = yield "continuation_of", (gather_id,)
    [queue_row] = yield "queue_numbered", (queue_id,)
    draft = _decode_draft(draft_column)
    if draft.member is not None and not (yield "begin_pending", (draft.member.gather_id,)):
        # The gather that was to follow was cancelled, and removed long after that.
        draft = msgspec.structs.replace(draft, member=None)
    while True:
        yield from enqueue(tx, around, queues.queue_of(queue_row), [draft], bounded=False)
        rows = yield "job_by_id", (draft.id,)
        if rows and job_of(rows[0]).gathered == gather_id:
            break
        # The id is that of another job, or of one that was purged lately.
        draft = msgspec.structs.replace(draft, id=around.ids.new_id())
    yield "continue_gather", (gather_id, draft.id, tx.now_ms)
    tx.changed.add(gather_id)


def cancel_gather(tx: Tx, gather_id: str) -> Script[Gather]:
    """Let the continuation never run, nor what follows it in a chain."""
    instants = (tx.now_ms, tx.now_ms + MEMBERS_KEPT_MS)
    yield "cancel_gather", (gather_id, *instants)
    tx.changed.add(gather_id)
    follows = id_after(gather_id)
    while (yield "cancel_pending", (follows, *instants)):
        tx.changed.add(follows)
        follows = id_after(follows)
    gather = yield from find(tx, gather_id)
    if gather.state is not GatherState.CANCELLED:
        raise JobStateConflict(f"Gather {gather_id} is {gather.state.label} already.")
    return gather


# -- reading ------------------------------------------------------------------------------------------


def find(tx: Tx, gather_id: str) -> Script[Gather]:
    """Find a gather."""
    rows = yield "gather_by_id", (gather_id,)
    if not rows:
        raise GatherDoesNotExist(gather_id)
    (_, tenant, state, on_error, total, succeeded, failed, sealed, queue, task, continuation, *instants, _) = rows[0]
    created_at_ms, expires_at_ms, ended_at_ms = instants
    if ended_at_ms is None and expires_at_ms <= tx.now_ms:
        # The sweeper has not come by yet.
        state, ended_at_ms = GatherState.EXPIRED, expires_at_ms
    return Gather(
        id=gather_id,
        tenant=tenant,
        state=GatherState(state),
        on_error=ErrorPolicy(on_error),
        total=total,
        succeeded=succeeded,
        failed=failed,
        sealed=bool(sealed),
        queue=queue,
        task=task,
        continuation_id=continuation,
        created_at_ms=created_at_ms,
        expires_at_ms=expires_at_ms,
        ended_at_ms=ended_at_ms,
    )


def results(tx: Tx, gather_id: str, after: int, limit: int) -> Script[MemberPage]:
    """Read what members came to, in the order of their places."""
    yield from find(tx, gather_id)
    rows = yield "members_after", (gather_id, after, limit + 1)
    more = len(rows) > limit
    rows = rows[:limit]
    positions = [row[3] for row in rows if row[3] is not None]
    shown, _ = yield from within_bytes(positions, PAGE_BYTES_MAX)
    if len(shown) < len(positions):
        more = True
        rows = rows[: next(place for place, row in enumerate(rows) if row[3] == shown[-1]) + 1]
    contents = {position: rest for position, *rest in (yield "results_at", (listed(shown),))}
    found = [_result(row, contents.get(row[3])) for row in rows]
    return MemberPage(found, found[-1].index if more else None)


def _result(row: Row, content: Row | None) -> MemberResult:
    index, job_id, state, _, queue = row
    result, failure = content or (None, None)
    succeeded = state == JobState.SUCCEEDED
    return MemberResult(
        index=index,
        job_id=job_id,
        state=JobState.CANCELLED if state is None else JobState(state),
        queue=queue,
        result=(result or NOTHING) if succeeded and content is not None else None,
        failure=None if failure is None or succeeded else decode_failure(failure),
    )


# -- upkeep -------------------------------------------------------------------------------------------


def remove_gathers(tx: Tx, rows_max: int) -> Script[int]:
    """Remove gathers that ended long ago, with their lists of members, and return how many rows that were."""
    rows = yield "old_gathers", (tx.now_ms - GATHERS_KEPT_MS, max(1, rows_max // 2))
    if not rows:
        return 0
    gather_ids = listed(gather_id for (gather_id,) in rows)
    members = yield "remove_some_members", (gather_ids, rows_max)
    gathers = yield "remove_empty_gathers", (gather_ids,)
    return len(members) + len(gathers)
