"""Instants as they leave the store: by the wall clock, whatever the store's own time is."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from penstock.domain.gather import Gather
from penstock.domain.job import Attempt, Job, JobEvent, Offer
from penstock.domain.job_queue import JobQueue
from penstock.domain.message import Message, Peeked
from penstock.domain.move import MoveTask
from penstock.domain.operation import Operation
from penstock.domain.worker import Worker
from penstock.store.job_port import DeadGroup, Events, Filled, Offers, Reported
from penstock.store.port import Leased, Peek

Value = TypeVar("Value")

INSTANTS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Message: ("sent_at_ms", "first_received_at_ms"),
    Peeked: ("visible_at_ms",),
    MoveTask: ("started_at_ms",),
    Job: ("enqueued_at_ms", "due_at_ms", "finished_at_ms", "expires_at_ms"),
    Attempt: ("started_at_ms", "ended_at_ms"),
    Offer: ("enqueued_at_ms", "accept_by_ms"),
    Reported: ("until_ms",),
    JobEvent: ("at_ms",),
    DeadGroup: ("last_at_ms",),
    JobQueue: ("created_at_ms",),
    Operation: ("started_at_ms", "ended_at_ms"),
    Gather: ("created_at_ms", "expires_at_ms", "ended_at_ms"),
    Worker: ("since_at_ms", "seen_at_ms"),
}
"""What is an instant of the store's time in what it answers. Queues and schedules are kept by the wall clock."""

HOLDERS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Leased: ("messages",),
    Peek: ("messages",),
    Peeked: ("message",),
    Job: ("history",),
    Offers: ("offers",),
    Events: ("events",),
    Filled: ("gather",),
}
"""In which fields others of them are."""


def shown(value: Value, ahead_ms: int) -> Value:
    """Return an answer with its instants by the wall clock, which the store's time is ahead of."""
    changed: Any = _shown(value, ahead_ms)
    result: Value = changed
    return result


def _shown(value: Any, ahead_ms: int) -> Any:  # noqa: ANN401 # Whatever a verb answers.
    kind = type(value)
    if kind in INSTANTS or kind in HOLDERS:
        fields = {
            # It has not come where it is None or 0.
            name: at_ms - ahead_ms
            for name in INSTANTS.get(kind, ())
            if (at_ms := getattr(value, name))
        }
        for name in HOLDERS.get(kind, ()):
            fields[name] = _shown(getattr(value, name), ahead_ms)
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, list):
        return [_shown(one, ahead_ms) for one in value]
    if isinstance(value, dict):
        return {key: _shown(one, ahead_ms) for key, one in value.items()}
    if isinstance(value, tuple):
        items = [_shown(one, ahead_ms) for one in value]
        return kind._make(items) if hasattr(kind, "_make") else tuple(items)
    return value
