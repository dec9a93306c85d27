"""What callers ask of the store, as values that wait to be gathered into one transaction.

Calls that wait together are concurrent, so any order among them is right; those of one kind are done together, because
SQLite does many rows in little more time than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.message import Draft, Receipt, Refused, SendResult, VisibilityChange
from penstock.domain.queue import Queue
from penstock.store.port import AttemptKey, Done, Leased

Answer = TypeVar("Answer")


class Call(msgspec.Struct, Generic[Answer], kw_only=True, eq=False):
    """One call of a verb: it ends with an answer or an error, which its caller is told after the commit."""

    answer: Answer | None = None
    error: BaseException | None = None
    future: asyncio.Future[Answer] | None = None
    done: Done[Answer] | None = None
    """What its caller waits for: a future that ends, or else to be told."""

    def abandoned(self) -> None:
        """Undo what the caller, who went away during the commit, does not get: most calls are done all the same."""


class Work(Call[Answer], eq=False):
    """Any other verb. `run` raises a `PenstockError` before it writes, or not at all."""

    run: Callable[[], Answer]


class Delete(Call[list[PenstockError | None]], eq=False):
    """A delete of messages."""

    queue: Queue
    receipts: Sequence[Receipt]


class ChangeVisibility(Call[list[PenstockError | None]], eq=False):
    """A change of leases."""

    queue: Queue
    changes: Sequence[VisibilityChange]


class Append(Call[list[SendResult]], eq=False):
    """An append of messages."""

    queue: Queue
    drafts: Sequence[Draft | Refused]
    attempt: AttemptKey | None


class Lease(Call[Leased], eq=False):
    """A lease of messages. One that is abandoned gives them back."""

    queue: Queue
    count: int
    lease_ms: int
    attempt: AttemptKey | None
    retry: int
    give_back: Callable[[Queue, Leased], None]

    def abandoned(self) -> None:
        if self.answer is not None and self.answer.messages:
            self.give_back(self.queue, self.answer)
