"""Staged jobs: those that users' transactions asked for, enqueued by the script that every enqueue goes through."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.domain.job_errors import IdempotencyKeyBusy, JobError, JobRefused, TooMany
from penstock.domain.job_queue import JobQueueSettings
from penstock.domain.job_request import check_queue_name, make_draft
from penstock.domain.limits import MINUTE_MS, SECOND_MS
from penstock.store.job_port import Enqueued, ReadStaged, StagedCounts, Taken
from penstock.store.jobs import queues
from penstock.store.jobs.enqueueing import enqueue
from penstock.store.jobs.script import Overtaken
from penstock.store.jobs.settings import encode_settings
from penstock.store.jobs.store import ScriptedJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from penstock.domain.job import JobDraft
    from penstock.domain.job_queue import JobQueue
    from penstock.store.jobs.script import Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings
    from penstock.store.postgres.jobs import PostgresRunner

_log = logging.getLogger(__name__)

ROWS_MAX = 500
"""How many staged jobs go into one transaction."""

BYTES_MAX = 8 * 1_048_576
"""How many bytes of requests go into one transaction, unless one of them alone has more."""

QUEUES_MAX = 100
"""How many queues one call looks at."""

HELD_QUEUES_MAX = 10_000
"""Of how many queues a node remembers that they take nothing for now."""

BUSY_MS = 50
"""When to look again at queues that are in another node's hands."""

PUT_OFF_MS_MAX = MINUTE_MS
"""The longest wait between two tries of a job that is refused for now, or that fails for a reason of ours."""

COUNTED_MAX = 100_000


class _Staged(msgspec.Struct, frozen=True, gc=False):
    """A row of `staged_job`."""

    position: int
    id: str
    request: str
    waited_ms: int
    """Since it was staged."""


class _Asked(msgspec.Struct):
    """What one call is to do, and what it tries while it does it."""

    read: ReadStaged
    after: str
    """Look at queues whose names come after this."""
    only: str | None
    """Look at this queue alone."""
    held: dict[str, int]
    """By name, until when queues take nothing."""
    alone: dict[str, int]
    """By name, of how many jobs of a queue each is still to have a transaction of its own."""
    queue: str = ""
    """The queue whose jobs are tried."""
    positions: list[int] = []
    """The jobs that are tried."""


class _Refused(msgspec.Struct, frozen=True, gc=False):
    """A staged job that will not be enqueued, and why."""

    job: _Staged
    error: PenstockError


class _Pass(msgspec.Struct):
    """What one transaction came to."""

    next_in_ms: int | None = None
    after: str = ""
    tried: int = 0
    busy: bool = False
    held_until_ms: int = 0
    due_in_ms: int | None = None
    refused: list[_Refused] = []


class PostgresJobs(ScriptedJobs):
    """Jobs on PostgreSQL, where users' own transactions can stage some."""

    def __init__(self, runner: PostgresRunner, **options: Any) -> None:  # noqa: ANN401 - those of the base
        super().__init__(runner, **options)
        self._staged_by = runner
        self._after_queue = ""
        self._held: dict[str, int] = {}
        self._alone: dict[str, int] = {}

    @property
    def stages(self) -> bool:
        return True

    def listen_staged(self, staged: Callable[[], None]) -> None:
        self._staged_by.listen_staged(staged)

    async def take_staged(self, read: ReadStaged, *, queue: str | None = None) -> Taken:
        asked = _Asked(read, self._after_queue, queue, self._held, self._alone)
        try:
            done = await self._run("take_staged", partial(take, around=self._around, asked=asked))
        except StoreUnavailable:
            raise
        except Exception as error:
            if not asked.positions:
                raise
            await self._step_over(asked, error)
            return Taken(next_in_ms=0)
        if queue is None:
            self._after_queue = done.after
        self._remember(asked, done)
        for one in done.refused:
            _warn(asked.queue, one.job.id, one.error)
        return Taken(next_in_ms=done.next_in_ms, due_in_ms=done.due_in_ms, busy=done.busy and not done.tried)

    async def staged_queue(self, job_id: str) -> str | None:
        return await self._run("staged_queue", partial(_queue_of, job_id=job_id))

    async def count_staged(self) -> StagedCounts:
        return await self._run("count_staged", _counts)

    def _remember(self, asked: _Asked, done: _Pass) -> None:
        if done.held_until_ms:
            if len(self._held) >= HELD_QUEUES_MAX:
                self._held.clear()
            self._held[asked.queue] = done.held_until_ms
        elif done.tried:
            self._held.pop(asked.queue, None)
        if asked.queue in self._alone:
            self._alone[asked.queue] -= done.tried
            if self._alone[asked.queue] <= 0:
                del self._alone[asked.queue]

    async def _step_over(self, asked: _Asked, error: Exception) -> None:
        """See to it that one job that cannot be enqueued does not keep others from it."""
        if len(asked.positions) > 1:
            # Which of them it was nobody knows: so each is tried by itself.
            self._alone[asked.queue] = ROWS_MAX
            return
        [position] = asked.positions
        if isinstance(error, JobError):
            _warn(asked.queue, f"at position {position}", error)
        else:
            _log.error("A staged job of queue %s could not be enqueued: %s", asked.queue, position, exc_info=error)
        await self._run("put_off_staged", partial(_put_off, position=position, error=error))


def take(tx: Tx, around: Surroundings, asked: _Asked) -> Script[_Pass]:
    """Enqueue staged jobs of the first queue that has some and that no other node is busy with."""
    asked.positions = []
    if asked.only is not None:
        rows: list[Row] = [(asked.only, 0)]
    else:
        rows = yield "staged_queues", (asked.after, QUEUES_MAX)
    done = _Pass(after=rows[-1][0] if len(rows) == QUEUES_MAX else "")
    later_ms = []
    for queue, next_at_ms in rows:
        at_ms = max(next_at_ms, asked.held.get(queue, 0))
        if at_ms > tx.now_ms:
            later_ms.append(at_ms - tx.now_ms)
            continue
        [(ours,)] = yield "staged_turn", (queue,)
        if not ours:
            done.busy = True
            later_ms.append(BUSY_MS)
            continue
        yield from _take_of(tx, around, asked, queue, done)
        if done.tried:
            # Others of this queue may follow, and so may the queues after it.
            done.after = asked.after
            done.next_in_ms = 0
            return done
    done.next_in_ms = 0 if done.after else min(later_ms, default=None)
    if asked.after and not done.after:
        # The queues before it come next.
        done.next_in_ms = 0
    return done


def _take_of(tx: Tx, around: Surroundings, asked: _Asked, name: str, done: _Pass) -> Script[None]:
    """Enqueue staged jobs of one queue."""
    rows = yield "staged_rows", (name, tx.now_ms, 1 if name in asked.alone else ROWS_MAX)
    if not rows:
        return
    positions: list[int] = []
    left_bytes = BYTES_MAX
    for position, size_bytes in rows:
        left_bytes -= size_bytes
        if positions and left_bytes < 0:
            break
        positions.append(position)
    asked.queue, asked.positions = name, positions
    done.tried = len(positions)
    staged = [_Staged(*row) for row in (yield "staged_contents", (positions, tx.now_ms))]
    drafts: list[tuple[_Staged, JobDraft]] = []
    answers: list[tuple[_Staged, JobDraft | None, Enqueued | PenstockError]] = []
    try:
        check_queue_name(name, around.limits)
    except PenstockError as error:
        answers = [(job, None, error) for job in staged]
    else:
        queue = yield from _kept(tx, name)
        for job in staged:
            try:
                drafts.append((job, _draft(tx, around, asked.read, queue, job)))
            except PenstockError as error:
                answers.append((job, None, error))
        if drafts:
            made = yield from enqueue(tx, around, queue, [draft for _, draft in drafts])
            answers += [(job, draft, answer) for (job, draft), answer in zip(drafts, made, strict=True)]
    yield from _settle(tx, answers, done)


def _kept(tx: Tx, name: str) -> Script[JobQueue]:
    """Find a queue, or make one as an ordinary enqueue does, and keep it until the transaction is over."""
    rows = yield "queue_kept", (name,)
    if not rows:
        yield "insert_queue", (name, encode_settings(JobQueueSettings()), tx.now_ms)
        rows = yield "queue_kept", (name,)
    if not rows:
        raise Overtaken(f"The queue {name!r} was made and deleted meanwhile.")
    return queues.queue_of(rows[0])


def _draft(tx: Tx, around: Surroundings, read: ReadStaged, queue: JobQueue, job: _Staged) -> JobDraft:
    """Make a staged request a draft whose delay and expiry count from when it was staged."""
    draft = make_draft(
        read(job.request, job.id),
        queue=queue.name,
        job_id=job.id,
        now_ms=tx.wall_ms,
        limits=around.limits,
        derive_key=queue.settings.derive_keys,
    )
    # Not before that: its key's fingerprint is of what was asked for.
    return msgspec.structs.replace(
        draft,
        delay_ms=max(draft.delay_ms - job.waited_ms, 0),
        # One that has expired since is stored and expires at once, as it would have, so that its caller finds it.
        expires_in_ms=None if draft.expires_in_ms is None else max(draft.expires_in_ms - job.waited_ms, 1),
    )


def _settle(
    tx: Tx, answers: Sequence[tuple[_Staged, JobDraft | None, Enqueued | PenstockError]], done: _Pass
) -> Script[None]:
    """Remove what was enqueued, and note of the rest why it was not, and when it is tried again."""
    enqueued: list[int] = []
    held: list[int] = []
    full: JobRefused | None = None
    put_off: list[Sequence[object]] = []
    refused: list[Sequence[object]] = []
    waiting: dict[str, int] = {}
    for job, draft, answer in answers:
        if isinstance(answer, Enqueued):
            enqueued.append(job.position)
            if draft is not None and (due_in_ms := _due_in_ms(tx, draft)) is not None:
                done.due_in_ms = due_in_ms if done.due_in_ms is None else min(done.due_in_ms, due_in_ms)
        elif isinstance(answer, JobRefused) and answer.why is not TooMany.RATE_TENANT:
            # The whole queue takes nothing for now, so no other job of it need be tried either.
            full = answer
            held.append(job.position)
        elif isinstance(answer, JobRefused | IdempotencyKeyBusy):
            # Jobs of one tenant get their tokens one after the other.
            tenant = "" if draft is None else draft.tenant
            waiting[tenant] = waiting.get(tenant, 0) + 1
            wait_ms = answer.retry_after_ms * waiting[tenant] if isinstance(answer, JobRefused) else SECOND_MS
            put_off.append((job.position, tx.now_ms + min(wait_ms, PUT_OFF_MS_MAX), *_reason(answer)))
        else:
            refused.append((job.position, *_reason(answer), tx.now_ms))
            done.refused.append(_Refused(job, answer))
    if full is not None:
        yield "staged_noted", (held, *_reason(full))
        done.held_until_ms = tx.now_ms + full.retry_after_ms
    if put_off:
        yield "staged_put_off", put_off
    if refused:
        yield "staged_refused", refused
    if enqueued:
        yield "staged_done", (enqueued,)


def _due_in_ms(tx: Tx, draft: JobDraft) -> int | None:
    due_in_ms = draft.delay_ms if draft.run_at_ms is None else draft.run_at_ms - tx.wall_ms
    return due_in_ms if due_in_ms > 0 else draft.expires_in_ms


def _reason(error: Exception) -> tuple[str, str]:
    return type(error).__name__, str(error)


def _put_off(tx: Tx, position: int, error: Exception) -> Script[None]:
    """Note that a job could not be enqueued: for good if that is its own fault, otherwise for a while."""
    if isinstance(error, JobError):
        yield "staged_refused", (position, *_reason(error), tx.now_ms)
    else:
        yield "staged_put_off", (position, tx.now_ms + PUT_OFF_MS_MAX, *_reason(error))


def _queue_of(_tx: Tx, job_id: str) -> Script[str | None]:
    rows = yield "staged_queue", (job_id,)
    return rows[0][0] if rows else None


def _counts(_tx: Tx) -> Script[StagedCounts]:
    [(waiting, refused)] = yield "staged_counts", (COUNTED_MAX,)
    return StagedCounts(waiting, refused)


def _warn(queue: str, job: str, error: Exception) -> None:
    _log.warning("A staged job of queue %s was refused and is kept in penstock.staged_job: %s: %s", queue, job, error)
