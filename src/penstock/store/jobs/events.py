"""Events of jobs: what is written when something happens to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.store.jobs.script import Tx

EventRow = tuple[int, int, int, str, str, bytes, int]
"""The arguments of `insert_event`."""

OWN_ID = "~"
"""Ids of the service's own events begin with this, and those of workers' events never do."""


class Told(Protocol):
    """A job whose row is locked, as far as its events go."""

    position: int
    id: str
    attempts: int
    events: int


def note_event(tx: Tx, job: Told, kind: str, data: bytes, event_id: str | None = None) -> EventRow:
    """Number the next event of a job whose row is locked, and return what `insert_event` takes.

    The number is kept in `job.events`, which the caller has to save. Without an id of its own (by which a repetition
    is found) the event gets one from its number.
    """
    job.events += 1
    tx.changed.add(job.id)
    return job.position, job.events, job.attempts, event_id or f"{OWN_ID}{job.events}", kind, data, tx.now_ms
