"""Jobs removed with everything about them, in bounded steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.store.jobs.script import Script

DETAILS_AT_ONCE_MAX = 20
"""A job with more attempts and events than this leaves them behind for the sweeper."""

REMOVED_PER_PASS = 20


class Doomed(NamedTuple):
    """A job to be removed, whose row is locked. `details` is how many attempts and events it has."""

    position: int
    id: str
    details: int

    @property
    def leaves_details(self) -> bool:
        """Whether its attempts and events are too many to go with it."""
        return self.details > DETAILS_AT_ONCE_MAX

    @property
    def rows_at_once(self) -> int:
        """How many rows go with its own."""
        return 1 if self.leaves_details else 1 + self.details


def remove(jobs: Sequence[Doomed], spent: Collection[str] = ()) -> Script[bool]:
    """Remove jobs, and say whether they leave something behind. Counting them, and leaving lanes, is the caller's.

    The idempotency keys of those whose ids are `spent` are kept: who repeats a request must not enqueue its job again.
    """
    if not jobs:
        return False
    positions = listed([job.position for job in jobs])
    for statement in ("remove_jobs", "remove_contents", "remove_tags"):
        yield statement, (positions,)
    yield "remove_keys", (listed([job.id for job in jobs if job.id not in spent]),)
    few = listed([job.position for job in jobs if not job.leaves_details])
    for statement in ("remove_attempts", "remove_events"):
        yield statement, (few,)
    many = [(job.position,) for job in jobs if job.leaves_details]
    for position in many:
        yield "note_removed", position
    return bool(many)


def remove_rest(rows_max: int) -> Script[int]:
    """Remove what removed jobs have left behind, and say how many rows that were."""
    left = rows_max
    for (position,) in (yield "removed", (REMOVED_PER_PASS,)):
        for statement in ("remove_some_events", "remove_some_attempts"):
            removed = yield statement, (position, left)
            left -= len(removed)
        # With nothing left of the bound, nobody has looked whether there is more.
        if left <= 0:
            break
        yield "forget_removed", (position,)
        left -= 1
    return rows_max - left
