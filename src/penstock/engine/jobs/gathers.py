"""Gathers: jobs enqueued to be waited for together, and the job that runs once they have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.gather import (
    CONTINUATION,
    ErrorPolicy,
    Gather,
    NewGather,
    NewLink,
    NewMember,
    id_after,
    id_at,
)
from penstock.domain.job import Membership
from penstock.domain.job_errors import JobInvalid
from penstock.domain.job_request import JobRequest, canonical_json, check_range, digest, make_draft
from penstock.engine.jobs.changes import LOOK_MS
from penstock.engine.jobs.enqueueing import Outcome, Stored, comes_due_in_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job import JobDraft
    from penstock.domain.job_limits import JobLimits
    from penstock.engine.jobs.changes import Changes
    from penstock.engine.jobs.queues import JobQueues
    from penstock.store.job_port import Filled, JobStore, MemberPage

_REQUEST_FIELDS = msgspec.structs.fields(JobRequest)


class GatherJob(NamedTuple):
    """A member or a continuation as somebody asks for it. Without an id it gets one from its place in the gather."""

    queue: str
    request: JobRequest
    id: str | None = None


class GatherRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A gather as somebody asks for it. Its tenant is that of its continuation.

    `then` has the continuation, and after it what follows in a chain, each once the one before has ended.
    """

    then: tuple[GatherJob, ...]
    on_error: ErrorPolicy
    expires_in_ms: int
    id: str | None = None


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """A gather after a call that was to add members, and what became of each by its index."""

    gather: Gather
    outcomes: dict[int, Outcome]
    created: bool
    links: tuple[NewLink, ...] = ()
    """The continuation and what follows it, of a gather that was to be opened."""


class Gathers:
    """The use cases around gathers. `expect` is called with the time, in ms, after which members come due or expire."""

    def __init__(
        self,
        store: JobStore,
        queues: JobQueues,
        clock: Clock,
        ids: IdSource,
        limits: JobLimits,
        changes: Changes,
        expect: Callable[[int], None],
    ) -> None:
        self._store = store
        self._queues = queues
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._changes = changes
        self._expect = expect
        self._closing = False

    async def open(self, asked: GatherRequest, members: Mapping[int, GatherJob], *, seal: bool) -> Gathered:
        """Open a gather with its first members by their indexes, or go on with the one of this id.

        Raises `GatherExists`, `JobExists` or `JobInvalid`, as what is wrong with a member never does: that is its
        outcome, and keeps the gather from being sealed.
        """
        check_range("expires_in_ms", asked.expires_in_ms, 1, self._limits.gather_expiry_ms_max)
        gather_id = asked.id or self._ids.new_id()
        links = await self._links(gather_id, asked.then)
        new = NewGather(
            id=gather_id,
            queue=links[0].queue,
            draft=links[0].draft,
            on_error=asked.on_error,
            expires_in_ms=asked.expires_in_ms,
            fingerprint=_fingerprint(asked),
            chain=links[1:],
        )
        drafts, outcomes = await self._drafts(gather_id, new.draft.tenant, members)
        filled = await self._store.open_gather(new, list(drafts.values()), seal=seal and not outcomes)
        return self._gathered(filled, drafts, outcomes, links)

    async def fill(self, gather: Gather, members: Mapping[int, GatherJob], *, seal: bool) -> Gathered:
        """Add members by their indexes, and seal the gather if all of them are stored."""
        drafts, outcomes = await self._drafts(gather.id, gather.tenant, members)
        filled = await self._store.fill_gather(gather.id, list(drafts.values()), seal=seal and not outcomes)
        return self._gathered(filled, drafts, outcomes)

    async def find(self, gather_id: str) -> Gather:
        """Return a gather or raise `GatherDoesNotExist`."""
        return await self._store.gather(gather_id)

    async def wait(self, gather_id: str, *, wait_ms: int) -> Gather:
        """Return a gather once it has ended, or as it is after `wait_ms`."""
        check_range("wait", wait_ms, 0, self._limits.result_wait_ms_max)
        gather = await self._store.gather(gather_id)
        if gather.ended_at_ms is not None or wait_ms == 0:
            return gather
        deadline_ms = self._clock.now_ms() + wait_ms
        with self._changes.watch(gather_id) as bell:
            while True:
                gather = await self._store.gather(gather_id)
                now_ms = self._clock.now_ms()
                if gather.ended_at_ms is not None or now_ms >= deadline_ms or self._closing:
                    return gather
                await bell.wait(self._clock, min(deadline_ms, now_ms + LOOK_MS))

    def end_waits(self) -> None:
        """Let all who wait here look once more and go."""
        self._closing = True
        self._changes.tell_all()

    async def cancel(self, gather_id: str) -> Gather:
        """Let the continuation never run, nor what follows it. Members go on."""
        return await self._store.cancel_gather(gather_id)

    async def results(self, gather_id: str, *, after: int = -1, limit: int = 100) -> MemberPage:
        """Return what the members beyond the index `after` came to, in order."""
        check_range("limit", limit, 1, self._limits.list_page_max)
        return await self._store.gather_results(gather_id, after=after, limit=limit)

    async def _links(self, gather_id: str, jobs: Sequence[GatherJob]) -> tuple[NewLink, ...]:
        """Make the continuation and what follows it drafts, or raise `JobInvalid`."""
        if not 1 <= len(jobs) <= self._limits.gather_links_max:
            raise JobInvalid(f"A chain has 1 to {self._limits.gather_links_max} links.", "then")
        links: list[NewLink] = []
        for place, job in enumerate(jobs):
            field = "then." * (place + 1)
            try:
                draft = self._continuation(gather_id, job, jobs[0].request.tenant)
            except JobInvalid as error:
                error.field = f"{field}{error.field}"
                raise
            if any(draft.id == link.draft.id for link in links):
                raise JobInvalid(f"Another link has the id {draft.id}.", f"{field}id")
            follows = id_after(gather_id)
            if place + 1 < len(jobs):
                draft = msgspec.structs.replace(draft, member=Membership(follows, 0))
            links.append(NewLink(gather_id, await self._queues.find_or_create(job.queue), draft))
            gather_id = follows
        return tuple(links)

    def _continuation(self, gather_id: str, job: GatherJob, tenant: str) -> JobDraft:
        for field in ("unique_key", "idempotency_key"):
            if getattr(job.request, field) is not None:
                raise JobInvalid(f"A continuation has no {field}: it is enqueued once in any case.", field)
        if job.request.tenant not in {"", tenant}:
            raise JobInvalid("The gather is another tenant's.", "tenant")
        draft = make_draft(
            msgspec.structs.replace(job.request, tenant=tenant),
            queue=job.queue,
            job_id=job.id or id_at(gather_id, CONTINUATION),
            now_ms=self._clock.wall_ms(),
            limits=self._limits,
        )
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

    def _gathered(
        self,
        filled: Filled,
        drafts: Mapping[int, NewMember],
        outcomes: dict[int, Outcome],
        links: tuple[NewLink, ...] = (),
    ) -> Gathered:
        for (index, member), answer in zip(drafts.items(), filled.members, strict=True):
            if isinstance(answer, PenstockError):
                outcomes[index] = answer
                continue
            due_in_ms = comes_due_in_ms(member.draft, self._clock)
            if answer.new and due_in_ms is not None:
                self._expect(due_in_ms)
            outcomes[index] = Stored(
                job_id=answer.job_id,
                queue=member.queue.name,
                state=answer.state,
                replayed=not answer.new,
                replaced=answer.replaced,
            )
        return Gathered(gather=filled.gather, outcomes=outcomes, created=filled.created, links=links)


def _fingerprint(asked: GatherRequest) -> bytes:
    """Digest what a gather was opened with, but for its members and who traces it."""
    first, *rest = asked.then
    settings = (asked.on_error.label.encode(), str(asked.expires_in_ms).encode())
    return digest(*_parts(first), *settings, *(part for job in rest for part in _parts(job)))


def _parts(job: GatherJob) -> tuple[bytes, ...]:
    """Return what a continuation is known by."""
    request = msgspec.structs.replace(job.request, payload=b"", trace=None, correlation_id="")
    # Fields that a later version adds make no difference to those who do not use them.
    given = {field.name: value for field in _REQUEST_FIELDS if (value := getattr(request, field.name)) != field.default}
    return (
        job.queue.encode(),
        (job.id or "").encode(),
        canonical_json(job.request.payload),
        msgspec.json.encode(given),
    )
