"""What errors of SQS clients mean, read from their codes, so that botocore need not be installed."""

from __future__ import annotations

from penstock.client.errors import QueueUnusable

_CREDENTIALS = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "MissingAuthenticationToken",
    "NoCredentialsError",
    "NotAuthorized",
    "PartialCredentialsError",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnrecognizedClientException",
}
_UNREACHABLE = {
    "ConnectTimeoutError",
    "ConnectionClosedError",
    "ConnectionError",
    "EndpointConnectionError",
    "HTTPClientError",
    "OSError",
    "ReadTimeoutError",
}
_PASSING = {
    "InternalError",
    "InternalFailure",
    "OverLimit",
    "RequestThrottled",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_STALE = {"MessageNotInflight", "ReceiptHandleIsInvalid"}


def code_of(error: BaseException) -> str:
    """Return the code of an error without its prefix, as `NonExistentQueue`; of others than SQS's, the class's name."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return short(str(response.get("Error", {}).get("Code", "")))
    return type(error).__name__


def short(code: str) -> str:
    """Return a code without `AWS.SimpleQueueService.`."""
    return code.rpartition(".")[2]


def is_denied(error: BaseException) -> bool:
    """Return whether the caller may not do this."""
    return code_of(error).startswith("AccessDenied")


def lacks_credentials(error: BaseException) -> bool:
    """Return whether there are no credentials, or none that are accepted."""
    return code_of(error) in _CREDENTIALS


def is_missing(error: BaseException) -> bool:
    """Return whether there is no such queue."""
    return code_of(error) in {"NonExistentQueue", "QueueDoesNotExist", "InvalidAddress"}


def is_unreachable(error: BaseException) -> bool:
    """Return whether no answer came."""
    return any(kind.__name__ in _UNREACHABLE for kind in type(error).__mro__)


def is_lasting(error: BaseException) -> bool:
    """Return whether the next call would very likely fail in the same way."""
    return is_unreachable(error) or is_denied(error) or lacks_credentials(error) or is_missing(error)


def is_passing(error: BaseException) -> bool:
    """Return whether SQS answered that it cannot do it now."""
    response = getattr(error, "response", None)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(response, dict) else 0
    return status >= 500 or status == 429 or code_of(error) in _PASSING


def is_stale(code: str, message: str) -> bool:
    """Return whether a receipt handle does not hold its message any more."""
    return short(code) in _STALE or (
        short(code).startswith("InvalidParameterValue") and "receipt" in message.lower() and not is_too_long(message)
    )


def is_too_long(message: str) -> bool:
    """Return whether a message cannot be hidden for longer: SQS allows 12 hours after the receive."""
    return "VisibilityTimeout" in message and "limit" in message


def unusable(error: BaseException, queue_url: str) -> QueueUnusable:
    """Return the error that says why a queue cannot be used, and what to look at."""
    code = code_of(error)
    if is_missing(error):
        return QueueUnusable(f"There is no queue {queue_url}: check the URL, the region and the account.")
    if lacks_credentials(error):
        return QueueUnusable(f"The credentials for {queue_url} are not accepted ({code}): {error}")
    if is_denied(error):
        return QueueUnusable(f"The credentials do not allow this call on {queue_url}: {error}")
    if is_unreachable(error):
        return QueueUnusable(f"The endpoint of {queue_url} cannot be reached: {error}")
    return QueueUnusable(f"The queue {queue_url} cannot be used ({code}): {error}")
