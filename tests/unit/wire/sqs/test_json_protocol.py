from __future__ import annotations

import msgspec
import pytest

from penstock.domain.errors import (
    InvalidParameter,
    MissingParameter,
    PenstockError,
    QueueDoesNotExist,
    StoreUnavailable,
)
from penstock.wire.http import Request, Response
from penstock.wire.sqs import shapes
from penstock.wire.sqs.errors import MalformedRequest, UnknownAction, sqs_error
from penstock.wire.sqs.json_protocol import JsonProtocol
from penstock.wire.sqs.operations import OPERATIONS

JSON = JsonProtocol()
ID = "r-1"
URL = "http://localhost:9324/000000000000/orders"


def request(operation: str, body: bytes) -> Request:
    headers = {"x-amz-target": f"AmazonSQS.{operation}", "content-type": "application/x-amz-json-1.0"}
    return Request("POST", "/", "", headers, body)


READ: list[tuple[str, bytes, msgspec.Struct]] = [
    (
        "SendMessage",
        b'{"QueueUrl":"http://localhost:9324/000000000000/orders","MessageBody":"h\\u00e9llo","DelaySeconds":5}',
        shapes.SendMessageRequest(message_body="héllo", queue_url=URL, delay_seconds=5),
    ),
    (
        "SendMessage",
        (
            b'{"MessageBody":"a","MessageAttributes":{"n":{"DataType":"Number.int","StringValue":"1"},'
            b'"b":{"DataType":"Binary","BinaryValue":"AAH/"}},"MessageGroupId":"g","MessageDeduplicationId":"d"}'
        ),
        shapes.SendMessageRequest(
            message_body="a",
            message_attributes={
                "n": shapes.MessageAttributeValue(data_type="Number.int", string_value="1"),
                "b": shapes.MessageAttributeValue(data_type="Binary", binary_value=b"\x00\x01\xff"),
            },
            message_group_id="g",
            message_deduplication_id="d",
        ),
    ),
    ("SendMessage", b'{"MessageBody":"a","DelaySeconds":null}', shapes.SendMessageRequest(message_body="a")),
    ("SendMessage", b'{"MessageBody":"a","ToBeInvented":[{}]}', shapes.SendMessageRequest(message_body="a")),
    ("ListQueues", b"", shapes.ListQueuesRequest()),
    ("ListQueues", b"{}", shapes.ListQueuesRequest()),
    (
        "CreateQueue",
        b'{"QueueName":"orders","Attributes":{"DelaySeconds":"5"},"tags":{"team":"a"}}',
        shapes.CreateQueueRequest(queue_name="orders", attributes={"DelaySeconds": "5"}, tags={"team": "a"}),
    ),
    (
        "DeleteMessageBatch",
        b'{"Entries":[{"Id":"1","ReceiptHandle":"h"},{"Id":"2"}]}',
        shapes.DeleteMessageBatchRequest(
            entries=[
                shapes.DeleteMessageBatchRequestEntry(id="1", receipt_handle="h"),
                shapes.DeleteMessageBatchRequestEntry(id="2"),
            ]
        ),
    ),
]


@pytest.mark.parametrize(("operation", "body", "shape"), READ)
def test_requests_are_read(operation: str, body: bytes, shape: msgspec.Struct) -> None:
    assert JSON.decode(request(operation, body)) == (OPERATIONS[operation], shape)


NOT_JSON = "The request body is not valid JSON."
NULL_IN_MAP = "the parameter 'value' may not be null"
REFUSED: list[tuple[str, bytes, type[PenstockError], str]] = [
    ("SendMessage", b"{}", MissingParameter, "The request must contain the parameter MessageBody."),
    ("SendMessage", b'{"MessageBody":null}', MissingParameter, "The request must contain the parameter MessageBody."),
    ("DeleteMessage", b"{}", MissingParameter, "The request must contain the parameter ReceiptHandle."),
    (
        "ChangeMessageVisibility",
        b'{"ReceiptHandle":"h"}',
        MissingParameter,
        "The request must contain the parameter VisibilityTimeout.",
    ),
    ("SendMessage", b'{"MessageBody":1}', MalformedRequest, "NUMBER_VALUE can not be converted to a String"),
    ("SendMessage", b'{"MessageBody":1.5}', MalformedRequest, "NUMBER_VALUE can not be converted to a String"),
    ("SendMessage", b'{"MessageBody":true}', MalformedRequest, "BOOLEAN_VALUE can not be converted to a String"),
    ("SendMessage", b'{"MessageBody":[]}', MalformedRequest, "Start of list found where not expected"),
    (
        "SendMessage",
        b'{"MessageBody":{}}',
        MalformedRequest,
        "Start of structure or map found where not expected.",
    ),
    (
        "SendMessage",
        b'{"MessageBody":"a","DelaySeconds":"5"}',
        MalformedRequest,
        "STRING_VALUE can not be converted to an Integer",
    ),
    ("TagQueue", b'{"Tags":{"a":"b","c":null}}', InvalidParameter, NULL_IN_MAP),
    ("CreateQueue", b'{"QueueName":"q","tags":{"a":null}}', InvalidParameter, NULL_IN_MAP),
    ("SetQueueAttributes", b'{"Attributes":{"DelaySeconds":null}}', InvalidParameter, NULL_IN_MAP),
    ("SendMessage", b'{"MessageBody":"a","MessageAttributes":{"a":null}}', InvalidParameter, NULL_IN_MAP),
    ("SendMessageBatch", b'{"Entries":[{"Id":"a","MessageAttributes":{"a":null}}]}', InvalidParameter, NULL_IN_MAP),
    ("SendMessage", b'{"MessageBody":"a","MessageAttributes":[]}', MalformedRequest, "Expected map or null"),
    ("ReceiveMessage", b'{"AttributeNames":{}}', MalformedRequest, "Expected list or null"),
    (
        "ReceiveMessage",
        b'{"AttributeNames":[null]}',
        MalformedRequest,
        "NULL_VALUE can not be converted to a String",
    ),
    (
        "SendMessage",
        b'{"MessageBody":"a","MessageAttributes":{"b":{"BinaryValue":5}}}',
        MalformedRequest,
        "NUMBER_VALUE can not be converted to a Blob",
    ),
    ("SendMessage", b"[]", MalformedRequest, "Expected map or null"),
    ("SendMessage", b"null", MalformedRequest, "Expected map or null"),
    ("SendMessage", b"not JSON", MalformedRequest, NOT_JSON),
    ("SendMessage", b'{"MessageBody":"a"', MalformedRequest, NOT_JSON),
    ("SendMessage", b'{"MessageBody":"\xff"}', MalformedRequest, NOT_JSON),
    ("SendMessage", b'{"MessageBody":"\\ud800"}', MalformedRequest, NOT_JSON),
    ("SendMessage", b'{"MessageBody":"a","x":' + b"[" * 100_000, MalformedRequest, NOT_JSON),
    ("Fly", b"{}", UnknownAction, "The action Fly is not valid for this endpoint."),
]


@pytest.mark.parametrize(("operation", "body", "kind", "reason"), REFUSED)
def test_requests_that_make_no_sense_are_refused(
    operation: str, body: bytes, kind: type[PenstockError], reason: str
) -> None:
    with pytest.raises(kind) as refused:
        JSON.decode(request(operation, body))
    assert refused.value.reason == reason


@pytest.mark.parametrize("number", [b"2147483648", b"-2147483649", b"9" * 5_000])
def test_numbers_are_those_of_32_bits(number: bytes) -> None:
    with pytest.raises(MalformedRequest):
        JSON.decode(request("SendMessage", b'{"MessageBody":"a","DelaySeconds":' + number + b"}"))


def test_base64_has_to_be_base64() -> None:
    with pytest.raises(MalformedRequest):
        JSON.decode(request("SendMessage", b'{"MessageBody":"a","MessageAttributes":{"b":{"BinaryValue":"*"}}}'))


@pytest.mark.parametrize("headers", [{}, {"x-amz-target": "DynamoDB_20120810.ListTables"}, {"x-amz-target": ""}])
def test_a_request_for_another_service_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UnknownAction):
        JSON.decode(Request("POST", "/", "", headers, b"{}"))


WRITTEN: list[tuple[str, msgspec.Struct | None, bytes]] = [
    (
        "SendMessage",
        shapes.SendMessageResult(md5_of_message_body="d1", message_id="m-1"),
        b'{"MD5OfMessageBody":"d1","MessageId":"m-1"}',
    ),
    (
        "SendMessage",
        shapes.SendMessageResult(
            md5_of_message_body="d1",
            md5_of_message_attributes="d2",
            md5_of_message_system_attributes="d3",
            message_id="m-1",
            sequence_number="00000000000000000007",
        ),
        (
            b'{"MD5OfMessageBody":"d1","MD5OfMessageAttributes":"d2","MD5OfMessageSystemAttributes":"d3",'
            b'"MessageId":"m-1","SequenceNumber":"00000000000000000007"}'
        ),
    ),
    ("ReceiveMessage", shapes.ReceiveMessageResult(), b"{}"),
    (
        "ReceiveMessage",
        shapes.ReceiveMessageResult(
            messages=[
                shapes.Message(
                    message_id="m-1",
                    receipt_handle="h",
                    md5_of_body="d1",
                    body="héllo",
                    attributes={"ApproximateReceiveCount": "1"},
                    md5_of_message_attributes="d2",
                    message_attributes={"b": shapes.MessageAttributeValue(data_type="Binary", binary_value=b"\x00")},
                )
            ]
        ),
        (
            b'{"Messages":[{"MessageId":"m-1","ReceiptHandle":"h","MD5OfBody":"d1","Body":"h\xc3\xa9llo",'
            b'"Attributes":{"ApproximateReceiveCount":"1"},"MD5OfMessageAttributes":"d2",'
            b'"MessageAttributes":{"b":{"DataType":"Binary","BinaryValue":"AA=="}}}]}'
        ),
    ),
    (
        "DeleteMessageBatch",
        shapes.DeleteMessageBatchResult(
            successful=[shapes.DeleteMessageBatchResultEntry(id="1")],
            failed=[
                shapes.BatchResultErrorEntry(id="2", sender_fault=True, code="ReceiptHandleIsInvalid", message="Why")
            ],
        ),
        (
            b'{"Successful":[{"Id":"1"}],'
            b'"Failed":[{"Id":"2","SenderFault":true,"Code":"ReceiptHandleIsInvalid","Message":"Why"}]}'
        ),
    ),
    (
        "CancelMessageMoveTask",
        shapes.CancelMessageMoveTaskResult(approximate_number_of_messages_moved=0),
        b'{"ApproximateNumberOfMessagesMoved":0}',
    ),
    (
        "ListDeadLetterSourceQueues",
        shapes.ListDeadLetterSourceQueuesResult(queue_urls=[URL]),
        b'{"queueUrls":["%b"]}' % URL.encode(),
    ),
    ("DeleteMessage", None, b""),
]


@pytest.mark.parametrize(("operation", "result", "body"), WRITTEN)
def test_answers_are_written(operation: str, result: msgspec.Struct | None, body: bytes) -> None:
    assert JSON.answer(OPERATIONS[operation], result, ID) == Response(
        status=200,
        headers=[("content-type", "application/x-amz-json-1.0"), ("x-amzn-RequestId", "r-1")],
        body=body,
    )


ERRORS: list[tuple[PenstockError, int, str, bytes]] = [
    (
        QueueDoesNotExist("whatever the store says"),
        400,
        "AWS.SimpleQueueService.NonExistentQueue;Sender",
        b'{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}',
    ),
    (
        InvalidParameter("Value 11 is invalid."),
        400,
        "InvalidParameterValue;Sender",
        b'{"__type":"com.amazon.coral.service#InvalidParameterValueException","message":"Value 11 is invalid."}',
    ),
    (
        StoreUnavailable("Try again."),
        503,
        "ServiceUnavailable;Receiver",
        b'{"__type":"com.amazon.coral.service#ServiceUnavailableException","message":"Try again."}',
    ),
]


@pytest.mark.parametrize(("error", "status", "older", "body"), ERRORS)
def test_errors_are_written(error: PenstockError, status: int, older: str, body: bytes) -> None:
    assert JSON.refuse(sqs_error(error), JSON.reason_of(error), ID) == Response(
        status=status,
        headers=[
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amzn-RequestId", "r-1"),
            ("x-amzn-query-error", older),
        ],
        body=body,
    )
