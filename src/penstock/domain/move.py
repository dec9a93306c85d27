"""Message move tasks: dead letters on their way back to work, at a stated rate."""

from __future__ import annotations

import enum

import msgspec

from penstock.domain.queue import QueueName


class MoveStatus(enum.StrEnum):
    """How far a task has come. Only a running one changes again."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


class MoveFailure(enum.StrEnum):
    """Why a task stopped before its end."""

    DESTINATION_DOES_NOT_EXIST = "DestinationDoesNotExist"
    SOURCE_UNKNOWN = "SourceUnknown"
    """A message is to go back where it came from, but it was sent here directly."""
    DESTINATION_NOT_PERMITTED = "DestinationNotPermitted"
    """A message is to go back where it came from, and whoever started the task was not permitted to send there."""


class MoveTask(msgspec.Struct, frozen=True, kw_only=True):
    """Moves every visible message of `source` to `destination`, or back to where each came from.

    `rate` is in messages per second; None is as fast as bounded steps allow. `to_move` is how many were visible at
    the start.
    """

    id: str
    source: QueueName
    destination: QueueName | None
    rate: int | None
    status: MoveStatus
    moved: int
    to_move: int
    started_at_ms: int
    failure: MoveFailure | None = None
