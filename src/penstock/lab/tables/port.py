"""What the consumer needs of its tables, and which table a name stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Call

KEY = "message_id"
"""The hash key of both tables."""


class StatusTable(Protocol):
    """Our bookkeeping: which messages were begun, how often, and which are done."""

    def mark_started(self, message_id: str) -> int:
        """Record STARTED, unless it is COMPLETED, and return how often it was begun, this time included."""

    def mark_completed(self, message_id: str) -> None:
        """Record COMPLETED."""

    def close(self) -> None:
        """Let go of what it holds."""


class SideEffectsTable(Protocol):
    """The record of the service outside: which calls were made."""

    def exists(self, key: str) -> bool:
        """Return whether a call is on record."""

    def write(self, key: str, *, conditional: bool) -> bool:
        """Record a call; False if it is on record already and the write is conditional."""

    def close(self) -> None:
        """Let go of what it holds."""


class Ledger(Protocol):
    """Every call that was made outside, in order, without a unique key: so it can show a duplicate."""

    def append(self, call: Call) -> None:
        """Add a call."""

    def close(self) -> None:
        """Let go of what it holds."""
