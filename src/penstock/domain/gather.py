"""Gathers: jobs that are waited for together, and the job that runs once they have ended."""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from penstock.domain.job import Failure, JobDraft, JobState
from penstock.domain.limits import REPEAT_WINDOW_MS

if TYPE_CHECKING:
    from penstock.domain.job_queue import JobQueue

MEMBERS_KEPT_MS = REPEAT_WINDOW_MS
"""How long the members are kept, whatever their queues say, after the continuation has ended."""

CONTINUATION = -1
"""What a continuation has in place of an index."""

_INDEX_BITS = 20


class GatherState(IntEnum):
    """Where a gather is. The numbers are kept in stores."""

    OPEN = 1
    """Members can be added."""
    WAITING = 2
    """Sealed: its members are known, and it waits for them."""
    DONE = 3
    """Its continuation is enqueued."""
    EXPIRED = 4
    CANCELLED = 5
    PENDING = 6
    """In a chain: its only member is the continuation of the gather before it, which is not enqueued yet."""

    @property
    def label(self) -> str:
        """The state's name, as users see it."""
        return self.name.lower()


class ErrorPolicy(IntEnum):
    """What a member that is dead or cancelled means. The numbers are kept in stores."""

    FAIL = 1
    """The continuation runs once all members have succeeded. Until then the gather waits: a member can be retried."""
    COLLECT = 2
    """The continuation runs once all members have ended, however."""

    @property
    def label(self) -> str:
        """The policy's name, as users see it."""
        return self.name.lower()


class NewLink(NamedTuple):
    """A job that continues a gather; checked already. If another link follows, its draft is a member of that gather."""

    gather_id: str
    queue: JobQueue
    draft: JobDraft


class NewGather(NamedTuple):
    """A gather to be opened; checked already."""

    id: str
    queue: JobQueue
    """Of the continuation."""
    draft: JobDraft
    """The continuation. It has the gather's tenant."""
    on_error: ErrorPolicy
    expires_in_ms: int
    fingerprint: bytes
    """A digest of what was asked for, to tell another gather of the same id."""
    chain: tuple[NewLink, ...] = ()
    """What follows the continuation, one link after the other. Each belongs to a gather of one member, the link before
    it. These gathers have the error policy of this one, and expire with it.
    """


class NewMember(NamedTuple):
    """A job to be enqueued as a member; checked already. The draft says of which gather, and at which place."""

    queue: JobQueue
    draft: JobDraft


class Gather(msgspec.Struct, frozen=True, kw_only=True):
    """One gather as it is now."""

    id: str
    tenant: str
    state: GatherState
    on_error: ErrorPolicy
    total: int
    succeeded: int
    failed: int
    """How many are dead, cancelled or purged."""
    sealed: bool
    queue: str
    """Of the continuation, as its task."""
    task: str
    continuation_id: str | None
    created_at_ms: int
    expires_at_ms: int
    ended_at_ms: int | None

    @property
    def remaining(self) -> int:
        """How many members have not ended."""
        return self.total - self.succeeded - self.failed


class MemberResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a member came to, so far."""

    index: int
    job_id: str
    state: JobState
    queue: str | None = None
    """None if the job is gone: it was purged, or finished and forgotten."""
    result: bytes | None = None
    """JSON text, of a member that succeeded."""
    failure: Failure | None = None


def complete(on_error: ErrorPolicy, *, total: int, succeeded: int, failed: int) -> bool:
    """Return whether the members of a sealed gather have ended as its continuation needs it."""
    return succeeded == total or (on_error is ErrorPolicy.COLLECT and succeeded + failed == total)


def id_at(gather_id: str, index: int) -> str:
    """Return the id of the job at a place of a gather where the caller gives it none.

    The same place always has the same id, so that a repeated call finds its jobs. The ids of one gather follow each
    other and, if the gather's own id begins with a time, begin with the same.
    """
    own = UUID(gather_id)
    digest = int.from_bytes(hashlib.blake2b(own.bytes, digest_size=8).digest())
    # A UUID of version 8: 48 bits of the gather's id, 12 and 42 bits of a digest of it, and the place.
    first, second = digest >> 52, digest & (1 << 42) - 1
    return str(UUID(int=own.int >> 80 << 80 | 8 << 76 | first << 64 | 2 << 62 | second << _INDEX_BITS | index + 1))


def id_after(gather_id: str) -> str:
    """Return the id of the gather that follows another one in a chain: always the same.

    If the first gather's id begins with a time, it begins with the same.
    """
    own = UUID(gather_id)
    digest = int.from_bytes(hashlib.blake2b(own.bytes, digest_size=10, person=b"chain").digest())
    # A UUID of version 8: 48 bits of the gather's id, then 12 and 62 bits of a digest of it.
    first, second = digest >> 68, digest & (1 << 62) - 1
    return str(UUID(int=own.int >> 80 << 80 | 8 << 76 | first << 64 | 2 << 62 | second))
