"""Enqueueing: each job stored or refused, once for each key, with the result where it is known already."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.job import JobState
from penstock.domain.job_errors import (
    IdempotencyKeyBusy,
    IdempotencyKeyReused,
    JobDoesNotExist,
    JobInvalid,
)
from penstock.domain.job_request import make_draft
from penstock.engine.jobs.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job import JobDraft
    from penstock.domain.job_errors import JobRefused
    from penstock.domain.job_limits import JobLimits
    from penstock.domain.job_queue import JobQueue
    from penstock.domain.job_request import JobRequest
    from penstock.engine.jobs.queues import JobQueues
    from penstock.engine.jobs.result_cache import ResultCache
    from penstock.store.job_port import Enqueued, JobStore


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that is there, now or already."""

    job_id: str
    queue: str
    state: JobState
    replayed: bool = False
    """It has the id that was asked for already, or the idempotency key stood for it."""
    duplicate: bool = False
    """It has not finished and has the unique key that another job was to have."""
    replaced: str | None = None
    """The job with its unique key that was cancelled for it."""
    result: bytes | None = None
    """Of a job that was replayed and has succeeded."""


Outcome = Stored | PenstockError


def comes_due_in_ms(draft: JobDraft, clock: Clock) -> int | None:
    """In how many ms something happens by itself to a job that was enqueued now; None if nothing does."""
    delay_ms = draft.delay_ms
    if draft.run_at_ms is not None:
        delay_ms = draft.run_at_ms - clock.wall_ms()
    return delay_ms if delay_ms > 0 else draft.expires_in_ms


class Enqueueing:
    """Takes jobs in. `expect` is called with the time, in ms, after which jobs come due or expire."""

    def __init__(
        self,
        store: JobStore,
        queues: JobQueues,
        cache: ResultCache,
        clock: Clock,
        ids: IdSource,
        limits: JobLimits,
        expect: Callable[[int], None],
    ) -> None:
        self._store = store
        self._queues = queues
        self._cache = cache
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._expect = expect
        self._busy: set[tuple[int, bytes]] = set()
        self._refusals = Refusals(clock)

    def foresee(self, queue: str, tenant: str) -> JobRefused | None:
        """Tell at once that a new job without keys is refused, if that is known here; the store is not asked."""
        if not self._refusals:
            return None
        known = self._store.known_queue(queue)
        if known is None or known.settings.derive_keys:
            return None
        return self._refusals.foresee(known, tenant)

    @property
    def refuses(self) -> bool:
        """Whether there is anything that `foresee` could tell."""
        return bool(self._refusals)

    async def enqueue(self, queue: str, request: JobRequest, *, first_try: bool = False) -> Stored:
        """Enqueue one job. On its `first_try` no job can have its id, so it may be refused without asking the store."""
        (outcome,) = await self._enqueue(queue, [request], first_try=first_try)
        if isinstance(outcome, PenstockError):
            try:
                raise outcome
            finally:
                # It knows this frame by now, and a circle would keep the request until the collector comes by.
                del outcome
        return outcome

    async def enqueue_batch(self, entries: Sequence[tuple[str, JobRequest]]) -> list[Outcome]:
        """Enqueue jobs, each judged by itself; those of one queue in one transaction."""
        if not 1 <= len(entries) <= self._limits.batch_jobs_max:
            raise JobInvalid(f"A batch has 1 to {self._limits.batch_jobs_max} jobs.", "jobs")
        places: dict[str, list[int]] = {}
        for place, (queue, _) in enumerate(entries):
            places.setdefault(queue, []).append(place)
        answers = await asyncio.gather(
            *(self._attempt(queue, [entries[place][1] for place in own]) for queue, own in places.items())
        )
        outcomes: dict[int, Outcome] = {}
        for own, found in zip(places.values(), answers, strict=True):
            outcomes.update(zip(own, found, strict=True))
        return [outcomes[place] for place in range(len(entries))]

    async def _attempt(self, queue: str, requests: Sequence[JobRequest]) -> Sequence[Outcome]:
        try:
            return await self._enqueue(queue, requests)
        except PenstockError as error:
            # What is wrong with one queue is no reason to keep silent about what was stored in another.
            return [error] * len(requests)

    async def _enqueue(self, name: str, requests: Sequence[JobRequest], *, first_try: bool = False) -> list[Outcome]:
        queue = await self._queues.find_or_create(name)
        outcomes: dict[int, Outcome] = {}
        drafts: dict[int, JobDraft] = {}
        own: set[tuple[int, bytes]] = set()
        answers: Sequence[Enqueued | PenstockError] = ()
        try:
            for place, request in enumerate(requests):
                try:
                    draft = self._draft(queue, request)
                    if first_try:
                        draft = msgspec.structs.replace(draft, chosen=False)
                    found = self._known(queue, draft, own)
                except PenstockError as error:
                    # Where it came from nobody asks, and it would keep this frame with all requests.
                    outcomes[place] = error.with_traceback(None)
                    continue
                if found is None:
                    drafts[place] = draft
                else:
                    outcomes[place] = found
            if drafts:
                answers = await self._store.enqueue(queue, list(drafts.values()))
        finally:
            self._busy -= own
            self._refusals.learn(queue, list(drafts.values()), answers)
        for (place, draft), answer in zip(drafts.items(), answers, strict=True):
            outcomes[place] = await self._outcome(queue, draft, answer)
        return [outcomes[place] for place in range(len(requests))]

    def _draft(self, queue: JobQueue, request: JobRequest) -> JobDraft:
        return make_draft(
            request,
            queue=queue.name,
            job_id=self._ids.new_id(),
            now_ms=self._clock.wall_ms(),
            limits=self._limits,
            derive_key=queue.settings.derive_keys,
        )

    def _known(self, queue: JobQueue, draft: JobDraft, own: set[tuple[int, bytes]]) -> Stored | None:
        """Return or raise what is known without asking the store; None if the store has to be asked."""
        key = draft.idempotency_key
        if key is None:
            self._refusals.check(queue, draft)
            return None
        cached = None if queue.settings.strict else self._cache.get(queue.id, key)
        if cached is not None:
            if cached.fingerprint != draft.fingerprint:
                raise IdempotencyKeyReused("This idempotency key came with another request before.")
            return Stored(
                job_id=cached.job_id,
                queue=queue.name,
                state=JobState.SUCCEEDED,
                replayed=True,
                result=cached.result,
            )
        place = (queue.id, key)
        if place not in own:
            if place in self._busy:
                raise IdempotencyKeyBusy("The first request with this idempotency key is still being stored.")
            own.add(place)
            self._busy.add(place)
        return None

    async def _outcome(self, queue: JobQueue, draft: JobDraft, answer: Enqueued | PenstockError) -> Outcome:
        if isinstance(answer, PenstockError):
            return answer
        if answer.new:
            due_in_ms = comes_due_in_ms(draft, self._clock)
            if due_in_ms is not None:
                self._expect(due_in_ms)
        replayed = not answer.new and not answer.by_unique_key
        return Stored(
            job_id=answer.job_id,
            queue=queue.name,
            state=answer.state,
            replayed=replayed,
            duplicate=answer.by_unique_key,
            replaced=answer.replaced,
            result=await self._result(queue, draft, answer) if replayed else None,
        )

    async def _result(self, queue: JobQueue, draft: JobDraft, answer: Enqueued) -> bytes | None:
        """Look up what a replayed job came to, and keep it for those who ask again."""
        if answer.state is not JobState.SUCCEEDED:
            return None
        try:
            job = await self._store.job(answer.job_id)
        except JobDoesNotExist:
            return None  # It was forgotten since.
        if job.state is not JobState.SUCCEEDED:
            return None
        result = job.result or b"null"
        if draft.idempotency_key is not None and len(result) <= self._limits.cached_result_bytes_max:
            settings = queue.settings
            self._cache.put(
                queue.id,
                draft.idempotency_key,
                job_id=job.id,
                fingerprint=draft.fingerprint,
                result=result,
                # Neither longer than the key is remembered, nor than the job is.
                until_ms=min(job.enqueued_at_ms + settings.key_ttl_ms, (job.finished_at_ms or 0) + job.retention_ms),
            )
        return result
