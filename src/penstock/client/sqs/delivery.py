"""`Delivery`: a received message while a consumer holds it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.sqs.message import Message

HIDDEN_S_MAX = 43_200
"""SQS hides a message for at most 12 hours after its receive."""
_MARGIN_S = 5


class Phase(enum.Enum):
    """How far a message has come in the hands of a consumer."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    """Its handler is done with it, and it is being deleted."""
    RETURNING = "returning"
    """It is being made visible again, now or later, so it may be received again at any time."""
    SETTLED = "settled"
    """The consumer does not hold it any more."""


class Delivery:
    """One message in the hands of a consumer. Instants are milliseconds of the consumer's clock."""

    __slots__ = ("beat_at_ms", "hidden_until_ms", "message", "overdue", "phase", "receipt", "received_ms")

    def __init__(self, message: Message, *, now_ms: int, visibility_s: int | None) -> None:
        self.message = message
        self.phase = Phase.WAITING
        self.receipt = message.receipt
        """The newest receipt handle: a message that comes again while it is held brings another."""
        self.received_ms = now_ms
        self.hidden_until_ms = _hidden_until_ms(now_ms, visibility_s)
        self.beat_at_ms = 0
        """When its visibility is to be extended next."""
        self.overdue = False
        """Whether its visibility may have ended meanwhile, which was said."""

    def received_again(self, message: Message, *, now_ms: int, visibility_s: int | None) -> None:
        """Adopt the receipt handle of a later delivery of the same message."""
        self.receipt = message.receipt
        self.received_ms = now_ms
        self.hidden_until_ms = _hidden_until_ms(now_ms, visibility_s)
        self.overdue = False

    def longest_s(self, now_ms: int) -> int:
        """Return for how many more seconds SQS hides it at most."""
        return max(HIDDEN_S_MAX - _MARGIN_S - (now_ms - self.received_ms) // 1_000, 0)


def _hidden_until_ms(now_ms: int, visibility_s: int | None) -> int:
    """Return when a message is visible again: at the latest, if only the queue knows its visibility timeout."""
    return now_ms + (HIDDEN_S_MAX if visibility_s is None else visibility_s) * 1_000
