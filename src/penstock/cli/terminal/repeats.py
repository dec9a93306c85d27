"""The same cause again: written out once, then as `the same`, then counted once a minute."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import msgspec

CAUSES_MAX = 200
"""How many causes are remembered; the one that was silent for longest is forgotten first."""
JOBS_COUNTED_MAX = 1_000
"""Beyond this, a count says `over 1,000`."""
WINDOW_MS = 60_000

Form = Literal["whole", "same", "counted"]


class Repeat(msgspec.Struct, kw_only=True):
    """A cause that came up again."""

    about: object
    """What a summary is made of; that of the first time."""
    first_ms: int
    window_ms: int
    """When the minute began."""
    times: int = 1
    """How often it was written."""
    jobs: set[str] = msgspec.field(default_factory=set)
    """Whom it has met within this minute, without a line."""


class Repeats:
    """Decides in which form each event is written."""

    def __init__(self) -> None:
        self._causes: dict[Hashable, Repeat] = {}

    def meet(self, cause: Hashable, about: object, job: str, now_ms: int) -> tuple[Form, Repeat]:
        """Take in that a cause met a job; return how to write that, and what is known of the cause."""
        known = self._causes.pop(cause, None)
        if known is None:
            if len(self._causes) >= CAUSES_MAX:
                del self._causes[next(iter(self._causes))]
            known = Repeat(about=about, first_ms=now_ms, window_ms=now_ms)
            self._causes[cause] = known
            return "whole", known
        self._causes[cause] = known  # At the end now: it came up last.
        if known.times == 1:
            known.times, known.window_ms = 2, now_ms
            return "same", known
        if len(known.jobs) <= JOBS_COUNTED_MAX:
            known.jobs.add(job)
        return "counted", known

    def due(self, now_ms: int, *, last: bool = False) -> list[tuple[Repeat, str]]:
        """Return the causes whose minute is over, each with how many jobs it met. Quiet ones are forgotten.

        The `last` time, every minute is over.
        """
        over = [
            (cause, known) for cause, known in self._causes.items() if last or now_ms - known.window_ms >= WINDOW_MS
        ]
        due: list[tuple[Repeat, str]] = []
        for cause, known in over:
            if not known.jobs:
                del self._causes[cause]
                continue
            number = len(known.jobs)
            due.append((known, f"over {JOBS_COUNTED_MAX:,}" if number > JOBS_COUNTED_MAX else f"{number:,}"))
            known.jobs = set()
            known.window_ms = now_ms
        return due

    @property
    def next_ms(self) -> int | None:
        """When the next minute is over; None if nothing is counted."""
        return min((known.window_ms + WINDOW_MS for known in self._causes.values() if known.jobs), default=None)
