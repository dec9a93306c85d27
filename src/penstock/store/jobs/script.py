"""Scripts: transactions as generators that yield statements and get rows, so that any store can run them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from penstock.domain.job import JobState

Row = Any
"""A sequence of values, in the order of the statement's columns."""

Answer = TypeVar("Answer")

Step = tuple[str, Sequence[object]]
"""A statement by its name in jobs.sql, and its arguments."""

Many = tuple[str, list[Sequence[object]]]
"""A statement to be run once for each row of arguments; it gives no rows."""

Script = Generator[Step, list[Row], Answer]
"""Yields statements and is sent their rows; what it returns is the answer.

It may be run again from the start, if the commit is unknown or others were in the way, and then has to find done
what it did. What it raises rolls back.
"""


_encode = msgspec.json.Encoder().encode


def listed(values: Iterable[object]) -> str:
    """Put several values, or rows of them, into one argument: statements take them as a JSON array."""
    return _encode(list(values)).decode()


class Overtaken(Exception):
    """Others have changed what a script had found: it is rolled back and run again. Not where there is one writer."""


class GatherChange:
    """What one transaction changes about a gather: numbers are added to those that it has."""

    __slots__ = ("continuation_ended", "failed", "members", "seal", "succeeded")

    def __init__(self) -> None:
        self.members = 0
        self.succeeded = 0
        self.failed = 0
        self.seal = False
        self.continuation_ended: bool | None = None
        """None if nothing changed about that."""


class Tx:
    """One transaction: its instant, and what is to be done at its end."""

    __slots__ = ("ahead_ms", "changed", "counted", "gates", "gathers", "now_ms", "ready", "refunds", "shard", "steps")

    def __init__(self, now_ms: int, shard: int, ahead_ms: int = 0) -> None:
        self.now_ms = now_ms
        """Its instant in the store's own time, which all columns have but those of schedules."""
        self.ahead_ms = ahead_ms
        """How far the store's time is ahead of the wall clock, which callers go by."""
        self.shard = shard
        """Which of a queue's counters to use: on PostgreSQL there are several, or all would wait for one row."""
        self.ready: dict[int, int] = {}
        """By queue id, how many jobs may have become offerable."""
        self.changed: set[str] = set()
        """Jobs that have new events or are finished, and gathers that have ended."""
        self.counted: dict[tuple[int, int], int] = {}
        self.gates: set[tuple[int, str]] = set()
        """Queues and gates of theirs at which jobs have begun to wait."""
        self.refunds: dict[tuple[int, str, int], int] = {}
        """By queue, gate and the end of the offers: how many offers were no starts."""
        self.gathers: dict[str, GatherChange] = {}
        """By id, what changes about gathers."""
        self.steps: dict[str, int] = {}
        """By name, as `JobStore.steps` tells them: what happened to jobs, and how often."""

    @property
    def wall_ms(self) -> int:
        """Its instant by the wall clock."""
        return self.now_ms - self.ahead_ms

    def count(self, queue_id: int, state: JobState, number: int) -> None:
        """Note that so many more jobs of a queue are in a state."""
        key = (queue_id, int(state))
        self.counted[key] = self.counted.get(key, 0) + number

    def moved(self, queue_id: int, before: JobState, after: JobState) -> None:
        """Note that a job went from one state to another."""
        self.count(queue_id, before, -1)
        self.count(queue_id, after, 1)

    def gather(self, gather_id: str) -> GatherChange:
        """Return what changes about a gather, to be added to. It is written at the end."""
        return self.gathers.setdefault(gather_id, GatherChange())

    def note(self, step: str, number: int = 1) -> None:
        """Note that something happened to so many jobs."""
        self.steps[step] = self.steps.get(step, 0) + number

    def refund(self, queue_id: int, gate: str, until_ms: int) -> None:
        """Note that an offer of a job with a start rate, which was to end at an instant, came to nothing."""
        key = (queue_id, gate, until_ms)
        self.refunds[key] = self.refunds.get(key, 0) + 1

    def wake(self, queue_id: int, number: int = 1) -> None:
        """Note that jobs of a queue may have become offerable."""
        self.ready[queue_id] = self.ready.get(queue_id, 0) + number


def save_counts(tx: Tx) -> Script[None]:
    """Write what was counted."""
    # In one order everywhere, so that two transactions never wait for each other.
    rows: list[Sequence[object]] = [
        (queue_id, state, tx.shard, number) for (queue_id, state), number in sorted(tx.counted.items()) if number
    ]
    if rows:
        yield "add_count", rows
