"""What clients send and are shown about gathers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.domain.gather import ErrorPolicy, Gather, GatherState, MemberResult, NewLink
from penstock.domain.job import Failure
from penstock.domain.limits import DAY_MS
from penstock.wire.jobs.answers import BatchEntry, State, label
from penstock.wire.jobs.shapes import YEAR_MS, JobId, NewJob

MEMBERS_MAX = 100_000

POLICIES = {policy.label: policy for policy in ErrorPolicy}


class Continuation(NewJob, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is enqueued once others have ended; `then` is enqueued once it has ended itself, and so on.

    Up to 50 follow each other.
    """

    then: Continuation | None = None

    def links(self) -> list[Continuation]:
        """List this one and what follows it."""
        links = [self]
        while links[-1].then is not None:
            links.append(links[-1].then)
        return links


class GatherFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A gather without its members."""

    then: Continuation
    id: JobId | None = None
    on_error: Literal["fail", "collect"] = "fail"
    seal: bool = True
    expires_in_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] = DAY_MS


class NewGather(GatherFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A gather to be opened: `then` is enqueued once its members have ended, and `jobs` are its first members.

    A job without an `id` gets one from its place in the gather.
    """

    jobs: Annotated[list[NewJob], Meta(max_length=500)] = []


class NewGatherTexts(GatherFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`NewGather` before its members are read, so that each is judged by itself."""

    jobs: Annotated[list[Raw], Meta(max_length=500)] = []


class MoreMembers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Further members of a gather; `first` is the index of the first of them, and `seal` says that no more follow."""

    first: Annotated[int, Meta(ge=0, lt=MEMBERS_MAX)]
    jobs: Annotated[list[NewJob], Meta(max_length=500)]
    seal: bool = False


class MoreMemberTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`MoreMembers` before they are read."""

    first: Annotated[int, Meta(ge=0, lt=MEMBERS_MAX)]
    jobs: Annotated[list[Raw], Meta(max_length=500)]
    seal: bool = False


class ContinuationView(msgspec.Struct, frozen=True, kw_only=True):
    """What runs once the members have ended; `id` is null until it is enqueued."""

    queue: str
    task: str
    id: str | None


class GatherView(msgspec.Struct, frozen=True, kw_only=True):
    """A gather, and how many of its members have succeeded, have failed (dead, cancelled or purged) and remain."""

    id: str
    state: Literal["pending", "open", "waiting", "done", "expired", "cancelled"]
    on_error: Literal["fail", "collect"]
    total: int
    succeeded: int
    failed: int
    remaining: int
    sealed: bool
    continuation: ContinuationView
    created_at_ms: int
    expires_at_ms: int
    ended_at_ms: int | None


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that will continue a gather: `id` is the job's own, and `gather` is what it waits for."""

    gather: str
    id: str
    queue: str
    task: str


class GatherAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A gather, and what became of each job of the request, in order.

    `links` are the continuation and what follows it, of a gather that was opened.
    """

    gather: GatherView
    results: list[BatchEntry]
    links: list[LinkView] | UnsetType = UNSET


class MemberView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a member came to, so far."""

    index: int
    id: str
    state: State
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None


class MemberResults(msgspec.Struct, frozen=True, kw_only=True):
    """What members came to, in the order of their indexes; `after` asks for those that follow, null is the end."""

    results: list[MemberView]
    after: int | None


_STATES = {state: state.label for state in GatherState}


def gather_view(gather: Gather) -> GatherView:
    """Show a gather."""
    return GatherView(
        id=gather.id,
        state=_STATES[gather.state],  # type: ignore[arg-type] # A test closes the list of names.
        on_error=gather.on_error.label,  # type: ignore[arg-type] # As above.
        total=gather.total,
        succeeded=gather.succeeded,
        failed=gather.failed,
        remaining=gather.remaining,
        sealed=gather.sealed,
        continuation=ContinuationView(queue=gather.queue, task=gather.task, id=gather.continuation_id),
        created_at_ms=gather.created_at_ms,
        expires_at_ms=gather.expires_at_ms,
        ended_at_ms=gather.ended_at_ms,
    )


def link_view(link: NewLink) -> LinkView:
    """Show a link of a chain."""
    return LinkView(gather=link.gather_id, id=link.draft.id, queue=link.queue.name, task=link.draft.task)


def member_view(member: MemberResult) -> MemberView:
    """Show what a member came to."""
    return MemberView(
        index=member.index,
        id=member.job_id,
        state=label(member.state),
        result=UNSET if member.result is None else Raw(member.result),
        failure=member.failure,
    )
