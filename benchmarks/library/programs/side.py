"""What a library's module offers to the program that runs it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Call: TypeAlias = tuple[str, int, int]
"""The name of a task, and its two arguments."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the store is, and how the library is to use it."""

    address: str
    durable: bool
    """Whether nothing that was acknowledged may be lost; otherwise all is as it comes."""
    slots: int
    """How many tasks a worker runs at once; 0 leaves it to the library's module, for tasks that take no time."""

    def slots_or(self, usual: int) -> int:
        """Return the slots, or what is usual where they are left open."""
        return self.slots or usual


class SyncProducer(Protocol):
    """Enqueues from threads."""

    def enqueue(self, call: Call) -> object:
        """Return when the store has acknowledged the job."""

    def enqueue_many(self, calls: Sequence[Call]) -> object:
        """Enqueue in the way that the library has for many jobs; a loop, if it has none."""


class AsyncProducer(Protocol):
    """Enqueues from tasks of one event loop. The methods are coroutine functions."""

    async def enqueue(self, call: Call) -> object:
        """Return when the store has acknowledged the job."""

    async def enqueue_many(self, calls: Sequence[Call]) -> object:
        """Enqueue in the way that the library has for many jobs; all at once, if it has none."""


class Side(Protocol):
    """A module of this package."""

    def producer(self, place: Place) -> SyncProducer:
        """Return what enqueues. An async library has `open_producer`, a coroutine function, instead."""

    def work(self, place: Place, ready: Callable[[], None]) -> None:
        """Run a worker until SIGTERM."""
