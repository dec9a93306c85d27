"""What clients send and are shown about gathers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.domain.gather import ErrorPolicy, Gather, GatherState, MemberResult
from penstock.domain.job import Failure
from penstock.domain.limits import DAY_MS
from penstock.wire.jobs.answers import BatchEntry, State, label
from penstock.wire.jobs.shapes import YEAR_MS, JobId, NewJob

MEMBERS_MAX = 100_000

POLICIES = {policy.label: policy for policy in ErrorPolicy}


class GatherFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A gather without its members."""

    then: NewJob
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
    state: Literal["open", "waiting", "done", "expired", "cancelled"]
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


class GatherAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A gather, and what became of each job of the request, in order."""

    gather: GatherView
    results: list[BatchEntry]


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


def member_view(member: MemberResult) -> MemberView:
    """Show what a member came to."""
    return MemberView(
        index=member.index,
        id=member.job_id,
        state=label(member.state),
        result=UNSET if member.result is None else Raw(member.result),
        failure=member.failure,
    )
