"""Errors as SQS names them: one table from what went wrong to its names and status in both protocols."""

from __future__ import annotations

import msgspec

from penstock.domain import errors
from penstock.domain.errors import PenstockError


class UnknownAction(PenstockError):
    """No operation has this name, or not at this address."""


class MissingAction(PenstockError):
    """The request does not say what it wants done."""


class MalformedRequest(PenstockError):
    """The request cannot be read: it is not JSON or not a form, or a value is of the wrong type."""


class AddressInvalid(PenstockError):
    """The request names no queue where one is needed, or its path means nothing."""


class ResourceDoesNotExist(PenstockError):
    """A queue that is named by its ARN does not exist."""


class AuthenticationMissing(PenstockError):
    """The request is not signed, and nobody unknown may do what it asks for."""


class SignatureIncomplete(PenstockError):
    """The request is signed, but not in full or not in a known way."""


class AccessKeyUnknown(PenstockError):
    """The request is signed with a key that does not exist."""


class SignatureMismatch(PenstockError):
    """The signature is not the one that the key's secret makes for this request at this time."""


class PresignedUrlExpired(PenstockError):
    """The request was signed in advance, and the time for which it was meant is over."""


class SqsError(msgspec.Struct, frozen=True):
    """How an error is told: its shape in JSON, its older code (XML, and JSON's `x-amzn-query-error`), its status."""

    type: str
    code: str
    status: int

    @property
    def sender_fault(self) -> bool:
        """Whether the caller can do something about it."""
        return self.status < 500

    @property
    def fault(self) -> str:
        """Whose fault it is, in SQS's words."""
        return "Sender" if self.sender_fault else "Receiver"


def _modelled(name: str, code: str | None = None, status: int = 400) -> SqsError:
    """Name an error that is part of SQS's own model."""
    return SqsError(f"com.amazonaws.sqs#{name}", code or name, status)


def _common(name: str, code: str, status: int = 400) -> SqsError:
    """Name an error that all of Amazon's services share."""
    return SqsError(f"com.amazon.coral.service#{name}", code, status)


def _prefixed(name: str, *, older: str | None = None, status: int = 400) -> SqsError:
    """Name a modelled error whose older code carries SQS's prefix."""
    return _modelled(name, f"AWS.SimpleQueueService.{older or name}", status)


_INVALID_PARAMETER = _common("InvalidParameterValueException", "InvalidParameterValue")
NO_ACTION = _common("UnknownOperationException", "MissingAction", 404)
INTERNAL_FAILURE = _common("InternalFailure", "InternalFailure", 500)

SQS_ERRORS: dict[type[PenstockError], SqsError] = {
    errors.InvalidParameter: _INVALID_PARAMETER,
    errors.MissingParameter: _common("MissingRequiredParameterException", "MissingParameter"),
    errors.InvalidAttributeName: _modelled("InvalidAttributeName"),
    errors.InvalidAttributeValue: _modelled("InvalidAttributeValue"),
    errors.InvalidMessageContents: _modelled("InvalidMessageContents"),
    errors.MessageTooLong: _INVALID_PARAMETER,
    errors.DeduplicationIdMissing: _INVALID_PARAMETER,
    errors.UnsupportedOperation: _prefixed("UnsupportedOperation"),
    errors.BatchEmpty: _prefixed("EmptyBatchRequest"),
    errors.BatchTooManyEntries: _prefixed("TooManyEntriesInBatchRequest"),
    errors.BatchTooLong: _prefixed("BatchRequestTooLong"),
    errors.BatchEntryIdInvalid: _prefixed("InvalidBatchEntryId"),
    errors.BatchEntryIdsNotDistinct: _prefixed("BatchEntryIdsNotDistinct"),
    errors.QueueDoesNotExist: _prefixed("QueueDoesNotExist", older="NonExistentQueue"),
    errors.QueueNameExists: _modelled("QueueNameExists", "QueueAlreadyExists"),
    errors.QueueDeletedRecently: _prefixed("QueueDeletedRecently"),
    errors.PurgeInProgress: _prefixed("PurgeQueueInProgress", status=403),
    errors.OverLimit: _modelled("OverLimit", status=403),
    errors.ReceiptHandleInvalid: _modelled("ReceiptHandleIsInvalid", status=404),
    errors.ReceiptHandleExpired: _INVALID_PARAMETER,
    errors.MessageDoesNotExist: _INVALID_PARAMETER,
    errors.MoveTaskDoesNotExist: _modelled("ResourceNotFoundException", status=404),
    errors.AccessDenied: _common("AccessDeniedException", "AccessDenied", 403),
    errors.PolicyInvalid: _modelled("InvalidAttributeValue"),
    errors.ServerOverloaded: _common("ServiceUnavailableException", "ServiceUnavailable", 503),
    errors.StoreUnavailable: _common("ServiceUnavailableException", "ServiceUnavailable", 503),
    # A server with such a store does not start, so no client sees these three.
    errors.StoreInUse: INTERNAL_FAILURE,
    errors.StoreIncompatible: INTERNAL_FAILURE,
    errors.StoreUrlInvalid: INTERNAL_FAILURE,
    errors.ExtraMissing: INTERNAL_FAILURE,
    UnknownAction: _common("UnknownOperationException", "InvalidAction"),
    MissingAction: NO_ACTION,
    MalformedRequest: _common("SerializationException", "MalformedInput"),
    AddressInvalid: _modelled("InvalidAddress", status=404),
    ResourceDoesNotExist: _modelled("ResourceNotFoundException", status=404),
    AuthenticationMissing: _common("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403),
    SignatureIncomplete: _common("IncompleteSignatureException", "IncompleteSignature"),
    AccessKeyUnknown: _common("UnrecognizedClientException", "InvalidClientTokenId", 403),
    SignatureMismatch: _common("InvalidSignatureException", "SignatureDoesNotMatch", 403),
    PresignedUrlExpired: _common("RequestExpired", "RequestExpired"),
}

_BY_NAME = {kind.__name__: error for kind, error in SQS_ERRORS.items()}

QUEUE_DOES_NOT_EXIST = "The specified queue does not exist."
QUEUE_DOES_NOT_EXIST_IN_QUERY = "The specified queue does not exist for this wsdl version."


def sqs_error(error: PenstockError) -> SqsError:
    """Find how an error is told."""
    return SQS_ERRORS[type(error)]


def sqs_error_named(name: str) -> SqsError:
    """Find how an error is told, by the name under which a refused entry of a batch keeps it."""
    return _BY_NAME[name]
