"""What a job of a Django task holds, and how Django's values and ours become each other."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from penstock.django.framework import normalize_json
from penstock.domain.job import PRIORITY_DEFAULT

LOWER = PRIORITY_DEFAULT
UPPER = 9 - PRIORITY_DEFAULT
"""How many of our priorities are below Django's 0, and above it."""


class TaskPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a job: how the function is called, and what the task had that a job has no field for."""

    args: list[Any]
    kwargs: dict[str, Any]
    priority: int = 0
    run_after: str | None = None


def read_payload(written: bytes | msgspec.Raw) -> TaskPayload | None:
    """Read a payload; None if it is not of a Django task."""
    try:
        return msgspec.json.decode(written, type=TaskPayload)
    except msgspec.DecodeError:
        return None


def plain(value: Any) -> Any:  # noqa: ANN401 - any value that JSON can hold
    """Return a value as it is after a way through JSON; raises `TypeError` or `ValueError` if it cannot go there."""
    return json.loads(json.dumps(normalize_json(value), allow_nan=False))


def our_priority(priority: int) -> int:
    """Return the priority of ours, 0 to 9, for one of Django's, -100 to 100: never lower for a higher one, 4 for 0."""
    if priority == 0:
        return PRIORITY_DEFAULT
    if priority < 0:
        return (priority + 100) * LOWER // 100
    return PRIORITY_DEFAULT + 1 + (priority - 1) * UPPER // 100


def instant(at_ms: int) -> datetime:
    """Return an instant as Django has it: with a time zone, unless USE_TZ is off."""
    return as_django_has_it(datetime.fromtimestamp(at_ms / 1_000, UTC))


def as_django_has_it(at: datetime) -> datetime:
    """Return an instant with a time zone, or, if USE_TZ is off, without one."""
    made: datetime = at if settings.USE_TZ else timezone.make_naive(at)
    return made


def due_at(run_after: datetime | timedelta | None) -> datetime | None:
    """Return when a task may begin, with a time zone."""
    if run_after is None:
        return None
    due: datetime = timezone.now() + run_after if isinstance(run_after, timedelta) else run_after
    return due if timezone.is_aware(due) else timezone.make_aware(due)


def changed(task: Any, **changes: Any) -> Any:  # noqa: ANN401 - the framework's tasks have no types
    """Return a task with other fields, unchecked: what was valid when it was enqueued may not be any more."""
    made = object.__new__(type(task))
    for field in dataclasses.fields(task):
        object.__setattr__(made, field.name, changes.get(field.name, getattr(task, field.name)))
    return made
