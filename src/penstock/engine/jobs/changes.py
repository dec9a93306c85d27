"""Who wants to know when a job or a gather has changed, so that they look at it again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.domain.errors import OverLimit
from penstock.domain.limits import SECOND_MS
from penstock.engine.jobs.bell import Bell

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_MS = SECOND_MS
"""How often whoever waits looks by themselves: another node's word may be lost."""


class Changes:
    """Bells by job or gather, rung after every commit that changed it.

    Here they ring at once, on other nodes soon but not surely. So whoever waits looks by themselves from time to time.
    """

    def __init__(self, watched_max: int) -> None:
        self._bells: dict[str, set[Bell]] = {}
        self._watched_max = watched_max
        self._watched = 0

    def tell(self, job_id: str) -> None:
        """Ring for a job."""
        for bell in self._bells.get(job_id, ()):
            bell.ring()

    def tell_all(self) -> None:
        """Ring for all jobs, as when the service stops."""
        for bells in self._bells.values():
            for bell in bells:
                bell.ring()

    @contextlib.contextmanager
    def watch(self, job_id: str) -> Iterator[Bell]:
        """Have a bell rung whenever a job changes. To be begun before the first look, or a change may be missed."""
        if self._watched >= self._watched_max:
            raise OverLimit(f"{self._watched_max} clients wait for jobs already, and no more may.")
        bell = Bell()
        self._watched += 1
        self._bells.setdefault(job_id, set()).add(bell)
        try:
            yield bell
        finally:
            self._watched -= 1
            bells = self._bells[job_id]
            bells.discard(bell)
            if not bells:
                del self._bells[job_id]
