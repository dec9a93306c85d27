"""Gathers: jobs enqueued to be waited for together, and the job that runs once they have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.gather import CONTINUATION, ErrorPolicy, Gather, NewGather, NewMember, id_at
from penstock.domain.job import Membership
from penstock.domain.job_errors import JobInvalid
from penstock.domain.job_request import JobRequest, canonical_json, check_range, digest, make_draft
from penstock.engine.jobs.enqueueing import Outcome, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job import JobDraft
    from penstock.domain.job_limits import JobLimits
    from penstock.engine.jobs.queues import JobQueues
    from penstock.store.job_port import Filled, JobStore, MemberPage

_REQUEST_FIELDS = msgspec.structs.fields(JobRequest)


class GatherJob(NamedTuple):
    """A member or a continuation as somebody asks for it. Without an id it gets one from its place in the gather."""

    queue: str
    request: JobRequest
    id: str | None = None


class GatherRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A gather as somebody asks for it. Its tenant is that of its continuation."""

    then: GatherJob
    on_error: ErrorPolicy
    expires_in_ms: int
    id: str | None = None


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """A gather after a call that was to add members, and what became of each by its index."""

    gather: Gather
    outcomes: dict[int, Outcome]
    created: bool


class Gathers:
    """The use cases around gathers. `expect` is called with the delay, in ms, of members that come due later."""

    def __init__(
        self,
        store: JobStore,
        queues: JobQueues,
        clock: Clock,
        ids: IdSource,
        limits: JobLimits,
        expect: Callable[[int], None],
    ) -> None:
        self._store = store
        self._queues = queues
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._expect = expect

    async def open(self, asked: GatherRequest, members: Mapping[int, GatherJob], *, seal: bool) -> Gathered:
        """Open a gather with its first members by their indexes, or go on with the one of this id.

        Raises `GatherExists`, `JobExists` or `JobInvalid`, as what is wrong with a member never does: that is its
        outcome, and keeps the gather from being sealed.
        """
        check_range("expires_in_ms", asked.expires_in_ms, 1, self._limits.gather_expiry_ms_max)
        gather_id = asked.id or self._ids.new_id()
        new = NewGather(
            id=gather_id,
            queue=await self._queues.find_or_create(asked.then.queue),
            draft=self._continuation(gather_id, asked.then),
            on_error=asked.on_error,
            expires_in_ms=asked.expires_in_ms,
            fingerprint=_fingerprint(asked),
        )
        drafts, outcomes = await self._drafts(gather_id, new.draft.tenant, members)
        filled = await self._store.open_gather(new, list(drafts.values()), seal=seal and not outcomes)
        return self._gathered(filled, drafts, outcomes)

    async def fill(self, gather: Gather, members: Mapping[int, GatherJob], *, seal: bool) -> Gathered:
        """Add members by their indexes, and seal the gather if all of them are stored."""
        drafts, outcomes = await self._drafts(gather.id, gather.tenant, members)
        filled = await self._store.fill_gather(gather.id, list(drafts.values()), seal=seal and not outcomes)
        return self._gathered(filled, drafts, outcomes)

    async def find(self, gather_id: str) -> Gather:
        """Return a gather or raise `GatherDoesNotExist`."""
        return await self._store.gather(gather_id)

    async def cancel(self, gather_id: str) -> Gather:
        """Let the continuation never run. Members go on."""
        return await self._store.cancel_gather(gather_id)

    async def results(self, gather_id: str, *, after: int = -1, limit: int = 100) -> MemberPage:
        """Return what the members beyond the index `after` came to, in order."""
        check_range("limit", limit, 1, self._limits.list_page_max)
        return await self._store.gather_results(gather_id, after=after, limit=limit)

    def _continuation(self, gather_id: str, then: GatherJob) -> JobDraft:
        for field in ("unique_key", "idempotency_key"):
            if getattr(then.request, field) is not None:
                raise JobInvalid(f"A continuation has no {field}: it is enqueued once in any case.", f"then.{field}")
        try:
            draft = make_draft(
                then.request,
                queue=then.queue,
                job_id=then.id or id_at(gather_id, CONTINUATION),
                now_ms=self._clock.wall_ms(),
                limits=self._limits,
            )
        except JobInvalid as error:
            error.field = f"then.{error.field}"
            raise
        return msgspec.structs.replace(draft, gathered=gather_id)

    async def _drafts(
        self, gather_id: str, tenant: str, members: Mapping[int, GatherJob]
    ) -> tuple[dict[int, NewMember], dict[int, Outcome]]:
        """Make members drafts, and say what is wrong with those that cannot be."""
        if len(members) > self._limits.batch_jobs_max:
            raise JobInvalid(f"At most {self._limits.batch_jobs_max} jobs at once.", "jobs")
        drafts: dict[int, NewMember] = {}
        outcomes: dict[int, Outcome] = {}
        for index, job in members.items():
            queue = await self._queues.find_or_create(job.queue)
            try:
                if job.request.tenant not in {"", tenant}:
                    raise JobInvalid("The gather is another tenant's.", "tenant")
                draft = make_draft(
                    msgspec.structs.replace(job.request, tenant=tenant),
                    queue=queue.name,
                    job_id=job.id or id_at(gather_id, index),
                    now_ms=self._clock.wall_ms(),
                    limits=self._limits,
                    derive_key=queue.settings.derive_keys,
                )
            except PenstockError as error:
                # Where it came from nobody asks, and it would keep this frame with all requests.
                outcomes[index] = error.with_traceback(None)
                continue
            draft = msgspec.structs.replace(draft, member=Membership(gather_id, index))
            drafts[index] = NewMember(queue=queue, draft=draft)
        return drafts, outcomes

    def _gathered(self, filled: Filled, drafts: Mapping[int, NewMember], outcomes: dict[int, Outcome]) -> Gathered:
        for (index, member), answer in zip(drafts.items(), filled.members, strict=True):
            if isinstance(answer, PenstockError):
                outcomes[index] = answer
                continue
            draft = member.draft
            delay_ms = draft.delay_ms or (draft.run_at_ms or 0) - self._clock.wall_ms()
            if answer.new and delay_ms > 0:
                self._expect(delay_ms)
            outcomes[index] = Stored(
                job_id=answer.job_id,
                queue=member.queue.name,
                state=answer.state,
                replayed=not answer.new,
                replaced=answer.replaced,
            )
        return Gathered(gather=filled.gather, outcomes=outcomes, created=filled.created)


def _fingerprint(asked: GatherRequest) -> bytes:
    """Digest what a gather was opened with, but for its members and who traces it."""
    then = msgspec.structs.replace(asked.then.request, payload=b"", trace=None, correlation_id="")
    # Fields that a later version adds make no difference to those who do not use them.
    given = {field.name: value for field in _REQUEST_FIELDS if (value := getattr(then, field.name)) != field.default}
    return digest(
        asked.then.queue.encode(),
        (asked.then.id or "").encode(),
        canonical_json(asked.then.request.payload),
        msgspec.json.encode(given),
        asked.on_error.label.encode(),
        str(asked.expires_in_ms).encode(),
    )
