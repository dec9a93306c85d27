"""Refusals that both stores give in the same words."""

from __future__ import annotations

from penstock.domain.errors import (
    InvalidParameter,
    MessageDoesNotExist,
    MoveTaskDoesNotExist,
    OverLimit,
    ReceiptHandleExpired,
    UnsupportedOperation,
)
from penstock.domain.limits import SECOND_MS


def over_limit(in_flight_max: int) -> OverLimit:
    """Make the error of a lease from a standard queue that has as many messages in flight as it may have."""
    return OverLimit(f"The maximum number of in flight messages is reached: {in_flight_max}.")


def lease_too_long(lease_ms: int, lease_ms_max: int) -> InvalidParameter:
    """Make the error of a change that would hide a message for longer than a receive may."""
    return InvalidParameter(
        f"Value {lease_ms // SECOND_MS} for parameter VisibilityTimeout is invalid. "
        f"Reason: Total VisibilityTimeout for the message is beyond the limit [{lease_ms_max // SECOND_MS} seconds]"
    )


def message_gone() -> MessageDoesNotExist:
    """Make the error of a change upon a message that is not in the queue any more."""
    return MessageDoesNotExist("The message does not exist.")


def receipt_expired() -> ReceiptHandleExpired:
    """Make the error of a FIFO receipt whose lease is over."""
    return ReceiptHandleExpired("The receipt handle has expired.")


def move_running() -> UnsupportedOperation:
    """Make the error of a second move task for one source."""
    return UnsupportedOperation(
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    )


def no_move() -> MoveTaskDoesNotExist:
    """Make the error of cancelling a move task that does not run."""
    return MoveTaskDoesNotExist("The resource that you specified for the TaskHandle parameter doesn't exist.")
