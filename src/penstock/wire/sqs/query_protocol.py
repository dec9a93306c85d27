"""The Query protocol: an operation and its parameters are a form or a query string; answers are XML, or JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from penstock.domain.errors import InvalidParameter, MissingParameter, PenstockError, QueueDoesNotExist
from penstock.wire.http import Response
from penstock.wire.sqs import xml
from penstock.wire.sqs.errors import (
    NO_ACTION,
    QUEUE_DOES_NOT_EXIST_IN_QUERY,
    MalformedRequest,
    MissingAction,
    SqsError,
    UnknownAction,
)
from penstock.wire.sqs.fields import Field, Kind, fields_of
from penstock.wire.sqs.operations import OPERATIONS
from penstock.wire.sqs.protocol import REQUEST_ID_HEADER

if TYPE_CHECKING:
    from penstock.wire.http import Request
    from penstock.wire.sqs.operations import Operation

_PARAMETERS_MAX = 2_000
"""A batch of ten messages with ten attributes each has under five hundred."""

_DEPTH_MAX = 8
_WITHOUT_QUEUE = frozenset({"CreateQueue", "ListQueues"})
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_FIELD = re.compile(r".* - at `\$\.(\w+)")
_JSON_NAMES = {"Messages": "messages", "QueueUrls": "queueUrls"}
"""Where JSON answers to this protocol write a name in their own way."""

Tree = dict[str, "str | Tree"]


class QueryProtocol:
    """The protocol of older SDKs, of browsers and of `curl`, answered in XML."""

    def decode(self, request: Request) -> tuple[Operation, msgspec.Struct]:
        """Read a request from its query string and its form; the form overrides, and the queue may be in the path."""
        parameters = _parameters(request)
        action = parameters.get("Action")
        if not action:
            raise MissingAction("The request must contain the parameter Action.")
        operation = OPERATIONS.get(action)
        at_a_queue = request.path not in ("", "/")
        if operation is None or (at_a_queue and action in _WITHOUT_QUEUE):
            raise UnknownAction(f"The action {action} is not valid for this endpoint.")
        given = _shaped(operation.request, _tree(parameters))
        try:
            return operation, msgspec.convert(given, operation.request, strict=False)
        except msgspec.ValidationError as error:
            raise _in_amazons_words(str(error)) from None

    def answer(self, operation: Operation, result: msgspec.Struct | None, request_id: str) -> Response:
        """Write the answer of an operation that succeeded."""
        name = operation.name
        inner = "" if result is None else xml.enclosed(f"{name}Result", xml.content(result))
        metadata = f"<ResponseMetadata>{xml.element('RequestId', request_id)}</ResponseMetadata>"
        return _xml_response(
            200, request_id, f'<{name}Response xmlns="{xml.NAMESPACE}">{inner}{metadata}</{name}Response>'
        )

    def refuse(self, error: SqsError, reason: str, request_id: str) -> Response:
        """Write the answer of an operation that failed; SQS says little to a request that wants nothing done."""
        if error is NO_ACTION:
            return _xml_response(error.status, request_id, "<UnknownOperationException/>", prologue="")
        told = (
            xml.element("Type", error.fault)
            + xml.element("Code", error.code)
            + xml.element("Message", reason)
            + "<Detail/>"
        )
        return _xml_response(
            error.status,
            request_id,
            f'<ErrorResponse xmlns="{xml.NAMESPACE}"><Error>{told}</Error>'
            f"{xml.element('RequestId', request_id)}</ErrorResponse>",
        )

    def reason_of(self, error: PenstockError) -> str:
        """Say what went wrong."""
        return QUEUE_DOES_NOT_EXIST_IN_QUERY if isinstance(error, QueueDoesNotExist) else error.reason


class QueryJsonProtocol(QueryProtocol):
    """The same, answered in JSON of the same structure: names in alphabetic order, and null for what is not there."""

    def answer(self, operation: Operation, result: msgspec.Struct | None, request_id: str) -> Response:
        """Write the answer of an operation that succeeded."""
        name = operation.name
        inner: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
        if result is not None:
            inner[f"{name}Result"] = _plain(result)
        return _json_response(200, request_id, {f"{name}Response": _in_order(inner)})

    def refuse(self, error: SqsError, reason: str, request_id: str) -> Response:
        """Write the answer of an operation that failed; SQS has none in JSON to a request that wants nothing done."""
        if error is NO_ACTION:
            return super().refuse(error, reason, request_id)
        told = {"Code": error.code, "Message": reason, "Type": error.fault}
        return _json_response(error.status, request_id, {"Error": told, "RequestId": request_id})


def _parameters(request: Request) -> dict[str, str]:
    try:
        given = parse_qsl(request.query, keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
        if request.method != "GET":
            given += parse_qsl(
                request.body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX
            )
    except UnicodeDecodeError:
        raise MalformedRequest("The parameters are not UTF-8.") from None
    except ValueError:
        raise MalformedRequest(f"The request holds more than {_PARAMETERS_MAX} parameters.") from None
    return dict(given)


def _tree(parameters: dict[str, str]) -> Tree:
    """Take names such as `Attribute.1.Name` apart."""
    tree: Tree = {}
    for name, value in parameters.items():
        *path, last = name.split(".", _DEPTH_MAX)
        node = tree
        for step in path:
            inner = node.setdefault(step, {})
            if isinstance(inner, str):
                raise MalformedRequest(f"The parameter {name} contradicts another one.")
            node = inner
        if isinstance(node.setdefault(last, value), dict):
            raise MalformedRequest(f"The parameter {name} contradicts another one.")
    return tree


def _shaped(shape: type[msgspec.Struct], tree: Tree) -> dict[str, Any]:
    """Pick the fields of a shape out of a tree."""
    given: dict[str, Any] = {}
    for field in fields_of(shape):
        node = tree.get(field.flat.name, tree.get(field.json_name))
        if node is not None:
            given[field.json_name] = _value(field, node)
    return given


def _value(field: Field, node: str | Tree) -> Any:  # noqa: ANN401 - whatever the field holds
    if field.kind is Kind.SCALAR:
        if not isinstance(node, str):
            raise MalformedRequest(f"The parameter {field.json_name} holds one value only.")
        return node
    if field.kind is Kind.LIST:
        return [_item(field, item) for item in _items(node)]
    key, value = field.flat.key, field.flat.value
    entries = [node] if not isinstance(node, str) and key in node else _items(node)
    given: dict[str, Any] = {}
    for entry in entries:
        told = None if isinstance(entry, str) else entry.get(key)
        if isinstance(entry, str) or not isinstance(told, str):
            raise MissingParameter(f"The request must contain the parameter {field.flat.name}.n.{key}.")
        given[told] = _item(field, entry.get(value, {} if field.shape else ""))
    return given


def _items(node: str | Tree) -> list[str | Tree]:
    """Put the items of a list in the order of their numbers; one without a number is a list of its own, if any."""
    if isinstance(node, str):
        return [node] if node else []
    try:
        return [node[number] for number in sorted(node, key=int)]
    except ValueError:
        raise MalformedRequest("The items of a list are numbered from 1.") from None


def _item(field: Field, node: str | Tree) -> str | dict[str, Any]:
    if isinstance(node, str) != (field.shape is None):
        raise MalformedRequest(f"The parameter {field.flat.name} is not of its type.")
    return node if isinstance(node, str) or field.shape is None else _shaped(field.shape, node)


def _in_amazons_words(reason: str) -> PenstockError:
    """Make the error for parameters that are not of their operation's shape."""
    missing = _MISSING.match(reason)
    if missing:
        return MissingParameter(f"The request must contain the parameter {missing[1]}.")
    field = _FIELD.match(reason)
    return InvalidParameter(f"Value for parameter {field[1]} is invalid." if field else reason)


def _plain(shape: msgspec.Struct) -> dict[str, Any]:
    return _in_order(
        {
            _JSON_NAMES.get(field.json_name, field.json_name): _plain_value(field, getattr(shape, field.attribute))
            for field in fields_of(type(shape))
        }
    )


def _in_order(told: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(told.items(), key=lambda item: item[0].lower()))


def _plain_value(field: Field, value: Any) -> Any:  # noqa: ANN401 - whatever the field holds
    if value is None or field.kind is Kind.SCALAR:
        return value
    if field.kind is Kind.LIST:
        return [_plain(item) if field.shape else item for item in value]
    key, inner = field.flat.key, field.flat.value
    return [{key: told, inner: _plain(item) if field.shape else item} for told, item in value.items()]


def _xml_response(status: int, request_id: str, text: str, *, prologue: str = xml.PROLOGUE) -> Response:
    return Response(
        status=status,
        headers=[("content-type", "text/xml"), (REQUEST_ID_HEADER, request_id)],
        body=f"{prologue}{text}".encode(),
    )


def _json_response(status: int, request_id: str, told: dict[str, Any]) -> Response:
    return Response(
        status=status,
        headers=[("content-type", "application/json"), (REQUEST_ID_HEADER, request_id)],
        body=msgspec.json.encode(told),
    )
