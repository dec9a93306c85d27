"""What requests of the job API come to: plain numbers, read when somebody asks for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.job_errors import JobRefused
from penstock.server.counters import RequestCounters

if TYPE_CHECKING:
    from penstock.domain.errors import PenstockError
    from penstock.engine.jobs.enqueueing import Stored


class JobCounters:
    """Counts requests, and what became of jobs that did not become new ones. Every key is one of few.

    What happens to jobs themselves the store counts.
    """

    def __init__(self) -> None:
        self.requests = RequestCounters()
        self.refused: dict[str, int] = {}
        """By reason."""
        self.found: dict[str, int] = {}
        """Jobs that were there already, by the kind of key that stood for them."""

    def count_enqueued(self, outcome: Stored | PenstockError) -> None:
        """Take in what became of a job that was to be enqueued."""
        if isinstance(outcome, JobRefused):
            self.refused[outcome.why] = self.refused.get(outcome.why, 0) + 1
        elif not isinstance(outcome, Exception) and (outcome.replayed or outcome.duplicate):
            kind = "idempotency" if outcome.replayed else "unique"
            self.found[kind] = self.found.get(kind, 0) + 1
