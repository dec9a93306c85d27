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
from penstock.wire.sqs.errors import MalformedRequest, MissingAction, UnknownAction, sqs_error
from penstock.wire.sqs.operations import OPERATIONS
from penstock.wire.sqs.query_protocol import QueryJsonProtocol, QueryProtocol

QUERY = QueryProtocol()
QUERY_JSON = QueryJsonProtocol()
ID = "r-1"
URL = "http://localhost:9324/000000000000/orders"
XMLNS = 'xmlns="http://queue.amazonaws.com/doc/2012-11-05/"'
METADATA = "<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata>"
FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}


def post(form: str, *, path: str = "/", query: str = "") -> Request:
    return Request("POST", path, query, FORM, form.encode())


READ: list[tuple[Request, msgspec.Struct]] = [
    (
        post("Action=SendMessage&Version=2012-11-05&MessageBody=h%C3%A9llo+there%26&DelaySeconds=5"),
        shapes.SendMessageRequest(message_body="héllo there&", delay_seconds=5),
    ),
    (
        Request("GET", "/000000000000/orders", "Action=SendMessage&MessageBody=a", {}, b""),
        shapes.SendMessageRequest(message_body="a"),
    ),
    (
        post("MessageBody=form", query="Action=SendMessage&MessageBody=query"),
        shapes.SendMessageRequest(message_body="form"),
    ),
    (
        post(
            "Action=SendMessage&MessageBody=a"
            "&MessageAttribute.2.Name=b&MessageAttribute.2.Value.DataType=Binary"
            "&MessageAttribute.2.Value.BinaryValue=AAH%2F"
            "&MessageAttribute.1.Name=n&MessageAttribute.1.Value.DataType=Number.int"
            "&MessageAttribute.1.Value.StringValue=1"
            "&MessageSystemAttribute.1.Name=AWSTraceHeader&MessageSystemAttribute.1.Value.DataType=String"
            "&MessageSystemAttribute.1.Value.StringValue=Root%3D1"
        ),
        shapes.SendMessageRequest(
            message_body="a",
            message_attributes={
                "n": shapes.MessageAttributeValue(data_type="Number.int", string_value="1"),
                "b": shapes.MessageAttributeValue(data_type="Binary", binary_value=b"\x00\x01\xff"),
            },
            message_system_attributes={
                "AWSTraceHeader": shapes.MessageAttributeValue(data_type="String", string_value="Root=1")
            },
        ),
    ),
    (
        post(
            "Action=CreateQueue&QueueName=orders&Attribute.1.Name=DelaySeconds&Attribute.1.Value=5"
            "&Tag.1.Key=team&Tag.1.Value=a&Tag.2.Key=empty&Tag.2.Value="
        ),
        shapes.CreateQueueRequest(
            queue_name="orders", attributes={"DelaySeconds": "5"}, tags={"team": "a", "empty": ""}
        ),
    ),
    (
        post("Action=SetQueueAttributes&Attribute.Name=DelaySeconds&Attribute.Value=5"),
        shapes.SetQueueAttributesRequest(attributes={"DelaySeconds": "5"}),
    ),
    (
        post("Action=ReceiveMessage&AttributeName.1=All&MessageAttributeName.1=a&MessageAttributeName.2=b.*"),
        shapes.ReceiveMessageRequest(attribute_names=["All"], message_attribute_names=["a", "b.*"]),
    ),
    (post("Action=ReceiveMessage&AttributeName=All"), shapes.ReceiveMessageRequest(attribute_names=["All"])),
    (
        post("Action=ReceiveMessage&" + "&".join(f"AttributeName.{n}={n}" for n in (10, 9, 1))),
        shapes.ReceiveMessageRequest(attribute_names=["1", "9", "10"]),
    ),
    (
        post("Action=ReceiveMessage&MessageSystemAttributeName.1=SenderId&MessageSystemAttributeName.2=SentTimestamp"),
        shapes.ReceiveMessageRequest(message_system_attribute_names=["SenderId", "SentTimestamp"]),
    ),
    (
        post(
            "Action=SendMessageBatch&SendMessageBatchRequestEntry.1.Id=1&SendMessageBatchRequestEntry.1.MessageBody=a"
            "&SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=s"
            "&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=String"
            "&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=v"
            "&SendMessageBatchRequestEntry.2.Id=2&SendMessageBatchRequestEntry.2.MessageBody=b"
        ),
        shapes.SendMessageBatchRequest(
            entries=[
                shapes.SendMessageBatchRequestEntry(
                    id="1",
                    message_body="a",
                    message_attributes={"s": shapes.MessageAttributeValue(data_type="String", string_value="v")},
                ),
                shapes.SendMessageBatchRequestEntry(id="2", message_body="b"),
            ]
        ),
    ),
    (post("Action=ListQueues"), shapes.ListQueuesRequest()),
    (post("Action=SendMessageBatch&SendMessageBatchRequestEntry="), shapes.SendMessageBatchRequest(entries=[])),
    (post("Action=TagQueue&Tag="), shapes.TagQueueRequest(tags={})),
]


@pytest.mark.parametrize(("request_", "shape"), READ)
def test_requests_are_read(request_: Request, shape: msgspec.Struct) -> None:
    assert QUERY.decode(request_)[1] == shape


REFUSED: list[tuple[Request, type[PenstockError], str]] = [
    (post(""), MissingAction, "The request must contain the parameter Action."),
    (post("Action="), MissingAction, "The request must contain the parameter Action."),
    (post("Action=Fly"), UnknownAction, "The action Fly is not valid for this endpoint."),
    (
        post("Action=ListQueues", path="/000000000000/orders"),
        UnknownAction,
        "The action ListQueues is not valid for this endpoint.",
    ),
    (
        post("Action=CreateQueue", path="/000000000000/orders"),
        UnknownAction,
        "The action CreateQueue is not valid for this endpoint.",
    ),
    (post("Action=SendMessage"), MissingParameter, "The request must contain the parameter MessageBody."),
    (
        post("Action=SendMessage&MessageBody=a&DelaySeconds=soon"),
        InvalidParameter,
        "Value for parameter DelaySeconds is invalid.",
    ),
    (
        post("Action=SendMessage&MessageBody=a&DelaySeconds=" + "9" * 5_000),
        InvalidParameter,
        "Value for parameter DelaySeconds is invalid.",
    ),
    (
        post("Action=SendMessage&MessageBody.1=a"),
        MalformedRequest,
        "The parameter MessageBody holds one value only.",
    ),
    (
        post("Action=SetQueueAttributes&Attribute.1.Value=5"),
        MissingParameter,
        "The request must contain the parameter Attribute.n.Name.",
    ),
    (
        post("Action=SetQueueAttributes&Attribute.x=5"),
        MalformedRequest,
        "The items of a list are numbered from 1.",
    ),
    (
        post("Action=SendMessageBatch&SendMessageBatchRequestEntry.1=a"),
        MalformedRequest,
        "The parameter SendMessageBatchRequestEntry is not of its type.",
    ),
    (
        post("Action=ListQueues&a.b=1&a=2"),
        MalformedRequest,
        "The parameter a contradicts another one.",
    ),
    (
        post("Action=ListQueues&a=2&a.b=1"),
        MalformedRequest,
        "The parameter a.b contradicts another one.",
    ),
    (post("Action=SendMessage&MessageBody=%FF"), MalformedRequest, "The parameters are not UTF-8."),
    (Request("POST", "/", "", FORM, b"Action=\xff"), MalformedRequest, "The parameters are not UTF-8."),
    (post("a=1&" * 2_001), MalformedRequest, "The request holds more than 2000 parameters."),
]


@pytest.mark.parametrize(("request_", "kind", "reason"), REFUSED)
def test_requests_that_make_no_sense_are_refused(request_: Request, kind: type[PenstockError], reason: str) -> None:
    with pytest.raises(kind) as refused:
        QUERY.decode(request_)
    assert refused.value.reason == reason


RECEIVED = shapes.ReceiveMessageResult(
    messages=[
        shapes.Message(
            message_id="m-1",
            receipt_handle="h",
            md5_of_body="d1",
            body='<a href="&">\r\n</a>',
            attributes={"ApproximateReceiveCount": "1", "SenderId": "000000000000"},
            md5_of_message_attributes="d2",
            message_attributes={
                "b": shapes.MessageAttributeValue(data_type="Binary", binary_value=b"\x00"),
                "s": shapes.MessageAttributeValue(data_type="String", string_value="v"),
            },
        )
    ]
)
BATCH = shapes.DeleteMessageBatchResult(
    successful=[shapes.DeleteMessageBatchResultEntry(id="1")],
    failed=[shapes.BatchResultErrorEntry(id="2", sender_fault=True, code="ReceiptHandleIsInvalid", message="Why")],
)

WRITTEN: list[tuple[str, msgspec.Struct | None, str]] = [
    (
        "SendMessage",
        shapes.SendMessageResult(md5_of_message_body="d1", message_id="m-1"),
        (
            f"<SendMessageResponse {XMLNS}><SendMessageResult><MD5OfMessageBody>d1</MD5OfMessageBody>"
            f"<MessageId>m-1</MessageId></SendMessageResult>{METADATA}</SendMessageResponse>"
        ),
    ),
    (
        "ReceiveMessage",
        RECEIVED,
        (
            f"<ReceiveMessageResponse {XMLNS}><ReceiveMessageResult><Message><MessageId>m-1</MessageId>"
            "<ReceiptHandle>h</ReceiptHandle><MD5OfBody>d1</MD5OfBody>"
            "<Body>&lt;a href=&quot;&amp;&quot;&gt;&#xD;\n&lt;/a&gt;</Body>"
            "<Attribute><Name>ApproximateReceiveCount</Name><Value>1</Value></Attribute>"
            "<Attribute><Name>SenderId</Name><Value>000000000000</Value></Attribute>"
            "<MD5OfMessageAttributes>d2</MD5OfMessageAttributes>"
            "<MessageAttribute><Name>b</Name><Value><DataType>Binary</DataType><BinaryValue>AA==</BinaryValue></Value>"
            "</MessageAttribute>"
            "<MessageAttribute><Name>s</Name><Value><DataType>String</DataType><StringValue>v</StringValue></Value>"
            f"</MessageAttribute></Message></ReceiveMessageResult>{METADATA}</ReceiveMessageResponse>"
        ),
    ),
    (
        "ReceiveMessage",
        shapes.ReceiveMessageResult(),
        (f"<ReceiveMessageResponse {XMLNS}><ReceiveMessageResult/>{METADATA}</ReceiveMessageResponse>"),
    ),
    (
        "DeleteMessageBatch",
        BATCH,
        (
            f"<DeleteMessageBatchResponse {XMLNS}><DeleteMessageBatchResult>"
            "<DeleteMessageBatchResultEntry><Id>1</Id></DeleteMessageBatchResultEntry>"
            "<BatchResultErrorEntry><Id>2</Id><SenderFault>true</SenderFault><Code>ReceiptHandleIsInvalid</Code>"
            f"<Message>Why</Message></BatchResultErrorEntry></DeleteMessageBatchResult>{METADATA}"
            "</DeleteMessageBatchResponse>"
        ),
    ),
    (
        "ListQueueTags",
        shapes.ListQueueTagsResult(tags={"team": "a"}),
        (
            f"<ListQueueTagsResponse {XMLNS}><ListQueueTagsResult><Tag><Key>team</Key><Value>a</Value></Tag>"
            f"</ListQueueTagsResult>{METADATA}</ListQueueTagsResponse>"
        ),
    ),
    ("DeleteMessage", None, f"<DeleteMessageResponse {XMLNS}>{METADATA}</DeleteMessageResponse>"),
]


@pytest.mark.parametrize(("operation", "result", "text"), WRITTEN)
def test_answers_are_written(operation: str, result: msgspec.Struct | None, text: str) -> None:
    assert QUERY.answer(OPERATIONS[operation], result, ID) == Response(
        status=200,
        headers=[("content-type", "text/xml"), ("x-amzn-RequestId", "r-1")],
        body=f'<?xml version="1.0"?>{text}'.encode(),
    )


# As API Gateway shows them, which asks SQS for JSON in this protocol.
WRITTEN_AS_JSON: list[tuple[str, msgspec.Struct | None, bytes]] = [
    (
        "SendMessage",
        shapes.SendMessageResult(md5_of_message_body="d1", message_id="m-1"),
        (
            b'{"SendMessageResponse":{"ResponseMetadata":{"RequestId":"r-1"},"SendMessageResult":'
            b'{"MD5OfMessageAttributes":null,"MD5OfMessageBody":"d1","MD5OfMessageSystemAttributes":null,'
            b'"MessageId":"m-1","SequenceNumber":null}}}'
        ),
    ),
    (
        "ReceiveMessage",
        shapes.ReceiveMessageResult(),
        b'{"ReceiveMessageResponse":{"ReceiveMessageResult":{"messages":null},"ResponseMetadata":{"RequestId":"r-1"}}}',
    ),
    (
        "ReceiveMessage",
        shapes.ReceiveMessageResult(
            messages=[
                shapes.Message(
                    message_id="m-1",
                    receipt_handle="h",
                    md5_of_body="d1",
                    body="a",
                    attributes={"SenderId": "0"},
                    message_attributes={"s": shapes.MessageAttributeValue(data_type="String", string_value="v")},
                )
            ]
        ),
        (
            b'{"ReceiveMessageResponse":{"ReceiveMessageResult":{"messages":[{"Attributes":[{"Name":"SenderId",'
            b'"Value":"0"}],"Body":"a","MD5OfBody":"d1","MD5OfMessageAttributes":null,"MessageAttributes":[{"Name":"s",'
            b'"Value":{"BinaryListValues":null,"BinaryValue":null,"DataType":"String","StringListValues":null,'
            b'"StringValue":"v"}}],"MessageId":"m-1","ReceiptHandle":"h"}]},"ResponseMetadata":{"RequestId":"r-1"}}}'
        ),
    ),
    (
        "ListQueues",
        shapes.ListQueuesResult(queue_urls=[URL]),
        b'{"ListQueuesResponse":{"ListQueuesResult":{"NextToken":null,"queueUrls":["%b"]},'
        b'"ResponseMetadata":{"RequestId":"r-1"}}}' % URL.encode(),
    ),
    ("DeleteMessage", None, b'{"DeleteMessageResponse":{"ResponseMetadata":{"RequestId":"r-1"}}}'),
]


@pytest.mark.parametrize(("operation", "result", "body"), WRITTEN_AS_JSON)
def test_answers_are_written_as_json_for_those_who_ask(
    operation: str, result: msgspec.Struct | None, body: bytes
) -> None:
    assert QUERY_JSON.answer(OPERATIONS[operation], result, ID) == Response(
        status=200, headers=[("content-type", "application/json"), ("x-amzn-RequestId", "r-1")], body=body
    )


ERRORS: list[tuple[PenstockError, int, str]] = [
    (
        QueueDoesNotExist("whatever the store says"),
        400,
        (
            "<Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code>"
            "<Message>The specified queue does not exist for this wsdl version.</Message><Detail/>"
        ),
    ),
    (
        InvalidParameter('<Value> & "quote" \x00'),
        400,
        (
            "<Type>Sender</Type><Code>InvalidParameterValue</Code>"
            "<Message>&lt;Value&gt; &amp; &quot;quote&quot; \ufffd</Message><Detail/>"
        ),
    ),
    (
        StoreUnavailable("Try again."),
        503,
        "<Type>Receiver</Type><Code>ServiceUnavailable</Code><Message>Try again.</Message><Detail/>",
    ),
]


@pytest.mark.parametrize(("error", "status", "text"), ERRORS)
def test_errors_are_written(error: PenstockError, status: int, text: str) -> None:
    assert QUERY.refuse(sqs_error(error), QUERY.reason_of(error), ID) == Response(
        status=status,
        headers=[("content-type", "text/xml"), ("x-amzn-RequestId", "r-1")],
        body=(
            f'<?xml version="1.0"?><ErrorResponse {XMLNS}><Error>{text}</Error><RequestId>r-1</RequestId>'
            "</ErrorResponse>"
        ).encode(),
    )


def test_errors_are_written_as_json_for_those_who_ask() -> None:
    error = UnknownAction("The action Fly is not valid for this endpoint.")
    assert QUERY_JSON.refuse(sqs_error(error), QUERY_JSON.reason_of(error), ID) == Response(
        status=400,
        headers=[("content-type", "application/json"), ("x-amzn-RequestId", "r-1")],
        body=b'{"Error":{"Code":"InvalidAction","Message":"The action Fly is not valid for this endpoint.",'
        b'"Type":"Sender"},"RequestId":"r-1"}',
    )


def test_a_request_that_wants_nothing_done_is_told_little() -> None:
    error = MissingAction("The request must contain the parameter Action.")
    response = QUERY.refuse(sqs_error(error), QUERY.reason_of(error), ID)
    assert (response.status, response.body) == (404, b"<UnknownOperationException/>")
