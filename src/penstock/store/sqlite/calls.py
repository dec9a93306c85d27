"""What callers ask of the store, as values that wait to be gathered into one transaction.

Calls that wait together are concurrent, so any order among them is right; those of one kind are done together, because
SQLite does many rows in little more time than one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.domain.errors import PenstockError
from penstock.domain.message import SendResult
from penstock.store.port import Leased

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from penstock.domain.message import Draft, Receipt, Refused, VisibilityChange
    from penstock.domain.queue import Queue
    from penstock.store.port import AttemptKey

Answer = TypeVar("Answer")


class Call(Generic[Answer]):
    """One call of a verb: it ends with an answer or an error, which its caller is told after the commit."""

    __slots__ = ("answer", "error", "future")

    future: asyncio.Future[Answer]

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def abandoned(self) -> None:
        """Undo what the caller, who went away during the commit, does not get: most calls are done all the same."""


class Work(Call[Answer]):
    """Any other verb. `run` raises a `PenstockError` before it writes, or not at all."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[], Answer]) -> None:
        super().__init__()
        self.run = run


class Delete(Call[list[PenstockError | None]]):
    """A delete of messages."""

    __slots__ = ("queue", "receipts")

    def __init__(self, queue: Queue, receipts: Sequence[Receipt]) -> None:
        super().__init__()
        self.queue = queue
        self.receipts = receipts


class ChangeVisibility(Call[list[PenstockError | None]]):
    """A change of leases."""

    __slots__ = ("changes", "queue")

    def __init__(self, queue: Queue, changes: Sequence[VisibilityChange]) -> None:
        super().__init__()
        self.queue = queue
        self.changes = changes


class Append(Call[list[SendResult]]):
    """An append of messages."""

    __slots__ = ("attempt", "drafts", "queue")

    def __init__(self, queue: Queue, drafts: Sequence[Draft | Refused], attempt: AttemptKey | None) -> None:
        super().__init__()
        self.queue = queue
        self.drafts = drafts
        self.attempt = attempt


class Lease(Call[Leased]):
    """A lease of messages. One that is abandoned gives them back."""

    __slots__ = ("_give_back", "attempt", "count", "lease_ms", "queue")

    def __init__(
        self,
        queue: Queue,
        count: int,
        lease_ms: int,
        attempt: AttemptKey | None,
        give_back: Callable[[Queue, Leased], None],
    ) -> None:
        super().__init__()
        self._give_back = give_back
        self.queue = queue
        self.count = count
        self.lease_ms = lease_ms
        self.attempt = attempt

    def abandoned(self) -> None:
        if self.answer is not None and self.answer.messages:
            self._give_back(self.queue, self.answer)
