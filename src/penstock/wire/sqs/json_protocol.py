"""AWS JSON 1.0: an operation is named in a header, its shapes are JSON, errors have a type and an older code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import InvalidParameter, MissingParameter, PenstockError, QueueDoesNotExist
from penstock.wire.http import Response
from penstock.wire.sqs.errors import QUEUE_DOES_NOT_EXIST, MalformedRequest, SqsError, UnknownAction
from penstock.wire.sqs.operations import OPERATIONS
from penstock.wire.sqs.protocol import REQUEST_ID_HEADER

if TYPE_CHECKING:
    from penstock.wire.http import Request
    from penstock.wire.sqs.operations import Operation

CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET_HEADER = "x-amz-target"
TARGET_PREFIX = "AmazonSQS."
QUERY_ERROR_HEADER = "x-amzn-query-error"

_CONTENT_TYPE_HEADER = ("content-type", CONTENT_TYPE)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_MISTYPED = re.compile(r"Expected `(?P<wanted>\w+)(?: \| null)?`, got `(?P<got>\w+)`(?: - at `\$\.(?P<field>\w+)`)?")
_NULL_IN_MAP = re.compile(r".*, got `null` - at `[^`]*\[\.\.\.\]`$")
_CONTAINERS = {"array": "list", "object": "map"}
_TYPES = {"str": "a String", "int": "an Integer", "bytes": "a Blob"}
_TOKENS = {
    "str": "STRING_VALUE",
    "int": "NUMBER_VALUE",
    "float": "NUMBER_VALUE",
    "bool": "BOOLEAN_VALUE",
    "null": "NULL_VALUE",
}
_BY_TARGET = {TARGET_PREFIX + name: operation for name, operation in OPERATIONS.items()}

_encode = msgspec.json.Encoder().encode


class JsonProtocol:
    """The protocol of today's SDKs."""

    def decode(self, request: Request) -> tuple[Operation, msgspec.Struct]:
        """Read a request; one with no body asks for nothing in particular."""
        target = request.headers.get(TARGET_HEADER, "")
        operation = _BY_TARGET.get(target)
        if operation is None:
            raise UnknownAction(f"The action {target.rpartition('.')[2]} is not valid for this endpoint.")
        try:
            return operation, operation.json_decoder.decode(request.body or b"{}")
        except msgspec.ValidationError as error:
            raise _in_amazons_words(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise MalformedRequest("The request body is not valid JSON.") from None

    def answer(self, _operation: Operation, result: msgspec.Struct | None, request_id: str) -> Response:
        """Write the answer of an operation that succeeded; one without a result has an empty body."""
        return Response(
            headers=[_CONTENT_TYPE_HEADER, (REQUEST_ID_HEADER, request_id)],
            body=b"" if result is None else _encode(result),
        )

    def refuse(self, error: SqsError, reason: str, request_id: str) -> Response:
        """Write the answer of an operation that failed."""
        return Response(
            status=error.status,
            headers=[
                _CONTENT_TYPE_HEADER,
                (REQUEST_ID_HEADER, request_id),
                (QUERY_ERROR_HEADER, f"{error.code};{error.fault}"),
            ],
            body=_encode({"__type": error.type, "message": reason}),
        )

    def reason_of(self, error: PenstockError) -> str:
        """Say what went wrong."""
        return QUEUE_DOES_NOT_EXIST if isinstance(error, QueueDoesNotExist) else error.reason


def _in_amazons_words(reason: str) -> PenstockError:
    """Make the error for a request that is JSON, but not of its operation's shape."""
    missing = _MISSING.match(reason)
    if missing:
        return MissingParameter(f"The request must contain the parameter {missing[1]}.")
    if _NULL_IN_MAP.match(reason):
        return InvalidParameter("the parameter 'value' may not be null")
    mistyped = _MISTYPED.match(reason)
    if mistyped and mistyped["got"] == "null" and mistyped["field"]:
        return MissingParameter(f"The request must contain the parameter {mistyped['field']}.")
    return MalformedRequest(_mismatch(mistyped["wanted"], mistyped["got"]) if mistyped else reason)


def _mismatch(wanted: str, got: str) -> str:
    if wanted in _CONTAINERS:
        return f"Expected {_CONTAINERS[wanted]} or null"
    if got == "array":
        return "Start of list found where not expected"
    if got == "object":
        return "Start of structure or map found where not expected."
    return f"{_TOKENS[got]} can not be converted to {_TYPES[wanted]}"
