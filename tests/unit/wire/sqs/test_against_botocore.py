"""Every operation and every error, in both protocols, written and read by botocore with Amazon's own model."""

from __future__ import annotations

import typing
from types import NoneType

import msgspec
import pytest
from botocore.model import Shape

from penstock.domain.errors import PenstockError
from penstock.wire.http import Request
from penstock.wire.sqs.errors import SQS_ERRORS, SqsError
from penstock.wire.sqs.json_protocol import JsonProtocol
from penstock.wire.sqs.operations import OPERATIONS
from penstock.wire.sqs.protocol import WireProtocol
from penstock.wire.sqs.query_protocol import QueryProtocol
from tests.support.sqs_model import (
    PROTOCOLS,
    operation_model,
    read_response,
    result_of,
    sample,
    sqs_model,
    write_request,
)

SPOKEN: dict[str, WireProtocol] = {"json": JsonProtocol(), "query": QueryProtocol()}
REQUEST_ID = "00000000-0000-0000-0000-000000000001"

# Modelled errors that no request to this server can meet.
NEVER_TOLD = {
    "InvalidIdFormat": "deprecated: ReceiptHandleIsInvalid took its place",
    "MessageNotInflight": "a handle works as long as its message is there; on FIFO queues an expired one is invalid",
    "InvalidSecurity": "requests are refused for their signature before they get here",
    "RequestThrottled": "there is no throttling, and a busy store is ServiceUnavailable",
    "KmsAccessDenied": "keys of KMS are kept, not used",
    "KmsDisabled": "keys of KMS are kept, not used",
    "KmsInvalidKeyUsage": "keys of KMS are kept, not used",
    "KmsInvalidState": "keys of KMS are kept, not used",
    "KmsNotFound": "keys of KMS are kept, not used",
    "KmsOptInRequired": "keys of KMS are kept, not used",
    "KmsThrottled": "keys of KMS are kept, not used",
}

each_operation = pytest.mark.parametrize("name", sorted(OPERATIONS))
in_each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def test_no_operation_of_the_model_is_missing_and_none_is_invented() -> None:
    assert set(OPERATIONS) == set(sqs_model("json").operation_names)


@each_operation
def test_the_shapes_are_those_of_the_model(name: str) -> None:
    model, operation = operation_model("json", name), OPERATIONS[name]
    assert_same_shape(model.input_shape, operation.request)
    assert (model.output_shape is None) == (operation.result is None)
    if operation.result is not None:
        assert_same_shape(model.output_shape, operation.result)


def assert_same_shape(model: Shape, ours: object) -> None:
    ours = bare(ours)
    match model.type_name:
        case "structure":
            assert isinstance(ours, type)
            assert issubclass(ours, msgspec.Struct)
            hints = typing.get_type_hints(ours)
            fields = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(ours)}
            assert set(fields) == set(model.members)
            for name, member in model.members.items():
                assert_same_shape(member, fields[name])
        case "list":
            assert typing.get_origin(ours) is list
            assert_same_shape(model.member, typing.get_args(ours)[0])
        case "map":
            assert typing.get_origin(ours) is dict
            assert_same_shape(model.key, typing.get_args(ours)[0])
            assert_same_shape(model.value, typing.get_args(ours)[1])
        case scalar:
            assert ours is {"string": str, "integer": int, "long": int, "boolean": bool, "blob": bytes}[scalar]


def bare(hint: object) -> object:
    """Take off `| None`."""
    if NoneType in typing.get_args(hint):
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not NoneType)
    return hint


@in_each_protocol
@each_operation
def test_a_request_with_everything_in_it_is_read_as_botocore_wrote_it(protocol: str, name: str) -> None:
    parameters = sample(operation_model(protocol, name).input_shape)
    if protocol == "query":
        # Both lists of names are `AttributeName.n` there, and botocore writes one over the other.
        parameters.pop("MessageSystemAttributeNames", None)
    assert read(protocol, write_request(protocol, name, parameters)) == (name, parameters)


@in_each_protocol
@each_operation
def test_a_request_with_only_what_is_required_is_read_as_botocore_wrote_it(protocol: str, name: str) -> None:
    shape = operation_model(protocol, name).input_shape
    parameters = {key: value for key, value in sample(shape).items() if key in shape.required_members}
    assert read(protocol, write_request(protocol, name, parameters)) == (name, parameters)


def read(protocol: str, request: Request) -> tuple[str, object]:
    """Read a request, and tell it in the words of the model."""
    operation, shape = SPOKEN[protocol].decode(request)
    assert type(shape) is operation.request
    return operation.name, in_the_models_words(shape)


def in_the_models_words(value: object) -> object:
    match value:
        case msgspec.Struct():
            told = {f.encode_name: getattr(value, f.name) for f in msgspec.structs.fields(value)}
            return {name: in_the_models_words(held) for name, held in told.items() if held is not None}
        case list():
            return [in_the_models_words(item) for item in value]
        case dict():
            return {key: in_the_models_words(item) for key, item in value.items()}
        case _:
            return value


@in_each_protocol
@each_operation
def test_an_answer_with_everything_in_it_is_read_by_botocore_as_it_was_meant(protocol: str, name: str) -> None:
    operation, model = OPERATIONS[name], operation_model(protocol, name)
    if operation.result is None:
        response = SPOKEN[protocol].answer(operation, None, REQUEST_ID)
        assert result_of(protocol, name, response) == {}
        return
    meant = sample(model.output_shape)
    response = SPOKEN[protocol].answer(operation, msgspec.convert(meant, operation.result), REQUEST_ID)
    assert result_of(protocol, name, response) == meant


@in_each_protocol
@each_operation
def test_every_answer_carries_its_request_id(protocol: str, name: str) -> None:
    operation, model = OPERATIONS[name], operation_model(protocol, name)
    result = None
    if operation.result is not None:
        result = msgspec.convert(sample(model.output_shape), operation.result)
    response = SPOKEN[protocol].answer(operation, result, REQUEST_ID)
    assert read_response(protocol, name, response)["ResponseMetadata"]["RequestId"] == REQUEST_ID
    assert ("x-amzn-RequestId", REQUEST_ID) in response.headers


@in_each_protocol
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.__name__) for kind in SQS_ERRORS])
def test_every_error_is_read_by_botocore_as_it_was_meant(protocol: str, kind: type[PenstockError]) -> None:
    error = SQS_ERRORS[kind]
    response = SPOKEN[protocol].refuse(error, 'Why: <&> "é"', REQUEST_ID)
    if protocol == "query" and error.code == "MissingAction":
        assert (response.status, response.body) == (404, b"<UnknownOperationException/>")
        return
    parsed = read_response(protocol, "SendMessage", response)
    assert parsed["ResponseMetadata"]["HTTPStatusCode"] == error.status
    assert parsed["ResponseMetadata"]["RequestId"] == REQUEST_ID
    told = parsed["Error"]
    assert told["Message"] == 'Why: <&> "é"'
    assert told["Code"] == error.code
    assert told["Type"] == ("Sender" if error.status < 500 else "Receiver")
    if protocol == "json":
        assert told["QueryErrorCode"] == error.type.rpartition("#")[2]
    else:
        assert told["Detail"] is None


def modelled_errors() -> dict[str, set[str]]:
    """Every error that the model names, with the operations that may raise it."""
    found: dict[str, set[str]] = {}
    for name in sqs_model("json").operation_names:
        for shape in operation_model("json", name).error_shapes:
            found.setdefault(shape.name, set()).add(name)
    return found


def told_errors() -> dict[str, SqsError]:
    prefix = "com.amazonaws.sqs#"
    return {e.type.removeprefix(prefix): e for e in SQS_ERRORS.values() if e.type.startswith(prefix)}


def test_every_modelled_error_is_told_or_there_is_a_reason_why_not() -> None:
    assert set(told_errors()) | set(NEVER_TOLD) == set(modelled_errors())
    assert not set(told_errors()) & set(NEVER_TOLD)


@pytest.mark.parametrize("name", sorted(told_errors()))
def test_a_modelled_error_becomes_botocores_exception_of_that_name(name: str) -> None:
    response = SPOKEN["json"].refuse(told_errors()[name], "Why", REQUEST_ID)
    operation = min(modelled_errors()[name])
    parsed = read_response("json", operation, response)
    shapes = {shape.name: shape for shape in operation_model("json", operation).error_shapes}
    assert parsed["Error"]["QueryErrorCode"] in shapes
