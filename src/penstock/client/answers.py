"""Shapes of answers that the server's own modules do not have yet."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penstock.domain.job import Failure
from penstock.wire.jobs.answers import BatchEntry, EventView, State


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a job; `after` asks for those that follow, `complete` says that there are no more so far."""

    events: list[EventView]
    after: int
    complete: bool
    state: State


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """The job that follows a gather; it has an id once it is enqueued."""

    queue: str
    task: str
    id: str | None = None


class GatherView(msgspec.Struct, frozen=True, kw_only=True):
    """A gather, and how many of its jobs have ended in which way."""

    id: str
    state: Literal["open", "waiting", "done", "expired", "cancelled"]
    on_error: Literal["fail", "collect"]
    total: int
    succeeded: int
    failed: int
    remaining: int
    sealed: bool
    continuation: Continuation
    created_at_ms: int
    expires_at_ms: int
    ended_at_ms: int | None = None


class GatherAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A gather, and what became of each job that was added to it."""

    gather: GatherView
    results: list[BatchEntry]


class GatherResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one job of a gather came to."""

    index: int
    id: str
    state: State
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None


class GatherResults(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs of a gather came to; `after` asks for those that follow."""

    results: list[GatherResult]
    after: int | None


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that has a stream open or has polled lately."""

    name: str
    queues: list[str]
    tasks: list[str] | None
    kind: Literal["stream", "poll"]
    credit: int
    running: int | None
    since_ms: int
    seen_at_ms: int


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Workers; `after` asks for those that follow."""

    workers: list[WorkerView]
    after: str | None
