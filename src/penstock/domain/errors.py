"""What can go wrong, in the words of the domain; protocols give these names of their own at the edge."""

from __future__ import annotations


class PenstockError(Exception):
    """A caller's fault, or a state of the world that the caller can act upon.

    The message is written for the caller. A bug of ours is an assertion, never one of these.
    """

    @property
    def reason(self) -> str:
        """The sentence that the caller is shown."""
        return str(self.args[0]) if self.args else type(self).__name__


# -- requests that make no sense ------------------------------------------------------------------


class InvalidParameter(PenstockError):
    """A parameter is out of its range or of the wrong form."""


class MissingParameter(PenstockError):
    """A parameter that the request needs is absent."""


class InvalidAttributeName(PenstockError):
    """No queue attribute has this name, or it cannot be set."""


class InvalidAttributeValue(PenstockError):
    """A queue attribute's value is out of its range or of the wrong form."""


class InvalidMessageContents(PenstockError):
    """The body holds characters outside the allowed set."""


class MessageTooLong(PenstockError):
    """One message, with its attributes, is larger than its queue takes."""


class DeduplicationIdMissing(PenstockError):
    """A message has no deduplication id, on a queue that makes none of its own. A batch with one is refused whole."""


class UnsupportedOperation(PenstockError):
    """The request cannot be carried out on this kind of queue, or in its present state."""


class BatchEmpty(PenstockError):
    """A batch holds no entry."""


class BatchTooManyEntries(PenstockError):
    """A batch holds more entries than a request may."""


class BatchTooLong(PenstockError):
    """A batch, all entries together, is larger than a request may be."""


class BatchEntryIdInvalid(PenstockError):
    """A batch entry's id is not of the allowed form."""


class BatchEntryIdsNotDistinct(PenstockError):
    """Two entries of one batch share an id."""


# -- who may do what ------------------------------------------------------------------------------


class AccessDenied(PenstockError):
    """The caller is known, or need not be, but may not do this here."""


class PolicyInvalid(PenstockError):
    """A policy document cannot be read, or asks for something that would not be enforced."""


# -- queues ---------------------------------------------------------------------------------------


class QueueDoesNotExist(PenstockError):
    """No queue has this name."""


class QueueNameExists(PenstockError):
    """A queue of this name exists with other attributes."""


class QueueDeletedRecently(PenstockError):
    """A queue of this name was deleted too short a while ago."""


class PurgeInProgress(PenstockError):
    """The queue was purged too short a while ago."""


# -- messages in flight ---------------------------------------------------------------------------


class OverLimit(PenstockError):
    """As many messages of the queue are in flight as may be."""


class ReceiptHandleInvalid(PenstockError):
    """The receipt handle was not made by this service for this queue."""


class ReceiptHandleExpired(PenstockError):
    """The receipt handle's lease is over, on a queue where that matters (FIFO)."""


class MessageDoesNotExist(PenstockError):
    """The message was deleted, purged or moved, or has expired, so its visibility cannot be changed."""


# -- message move tasks ---------------------------------------------------------------------------


class MoveTaskDoesNotExist(PenstockError):
    """No running move task has this handle."""


# -- the server -----------------------------------------------------------------------------------


class ServerOverloaded(PenstockError):
    """The server has as much to do as it may take on. Nothing was done; try again."""


# -- the store ------------------------------------------------------------------------------------


class StoreUnavailable(PenstockError):
    """The store did not answer, or is shutting down; whether the work was done may be unknown. Try again."""


class StoreInUse(PenstockError):
    """Another process owns this store."""


class StoreIncompatible(PenstockError):
    """The store was written by a newer version, or is not a Penstock store at all."""


class StoreUrlInvalid(PenstockError):
    """The store's address cannot be understood."""


class ExtraMissing(PenstockError):
    """Something optional is needed here and not installed. The message says what to install."""
