"""Operations: something done to many jobs, in steps, with progress."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from penstock.domain.job import JobState


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant: all that match everything that is given."""

    queue: str | None = None
    queues: tuple[str, ...] | None = None
    """Any of these, and none if it is empty; None is all."""
    states: tuple[JobState, ...] = ()
    """Any of these; empty is all."""
    task: str | None = None
    tenant: str | None = None
    tag: str | None = None
    failure_kind: str | None = None
    enqueued_from_ms: int | None = None
    enqueued_before_ms: int | None = None


class OperationKind(IntEnum):
    """What is done. The numbers are kept in stores."""

    REQUEUE = 1
    """Dead jobs are queued again, with fresh budgets."""
    PURGE = 2
    """Waiting jobs are removed."""

    @property
    def label(self) -> str:
        """The kind's name, as users see it."""
        return self.name.lower()


class OperationState(IntEnum):
    """How far it is. The numbers are kept in stores."""

    RUNNING = 0
    DONE = 1
    CANCELLED = 2

    @property
    def label(self) -> str:
        """The state's name, as users see it."""
        return self.name.lower()


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation as it is now."""

    id: str
    kind: OperationKind
    queue: str
    wanted: JobFilter
    rate: int | None
    """Jobs a second at most."""
    limit: int | None = None
    """Jobs in all at most."""
    state: OperationState
    done: int
    started_at_ms: int
    ended_at_ms: int | None = None
