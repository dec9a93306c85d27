"""Workers as people see them: who waits for jobs of which queues, by a stream or by polls."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class WorkerKind(StrEnum):
    """How a worker asks for jobs."""

    STREAM = "stream"
    POLL = "poll"


class Worker(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An open stream, or the recent polls of one worker name for the same queues and tasks at one node."""

    id: str
    """Made for the list alone: it says nothing about the stream's name, which is the right to change its credit."""
    name: str
    kind: WorkerKind
    queues: tuple[str, ...]
    tasks: tuple[str, ...] | None = None
    """The tasks that it takes; None is all."""
    credit: int
    """How many jobs it may have at once; of polls, how many the last one asked for."""
    running: int | None = None
    """How many jobs of the stream are accepted, as far as its node knows; None for polls, of which nobody counts it."""
    since_at_ms: int
    seen_at_ms: int
