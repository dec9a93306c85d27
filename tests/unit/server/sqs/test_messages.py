from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.limits import Limits
from penstock.server.sqs import SqsEndpoint
from penstock.testing import ManualClock
from tests.unit.server.sqs.conftest import Client, Refusal

TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
TEXT = {"DataType": "String", "StringValue": "v"}


async def test_what_is_sent_is_received_and_deleted(client: Client) -> None:
    url = await client.create("orders")
    sent = await client.call("SendMessage", QueueUrl=url, MessageBody="<héllo & \r\n>")
    [message] = await client.receive(url)
    assert message["MessageId"] == sent["MessageId"]
    assert message["Body"] == "<héllo & \r\n>"
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert "Attributes" not in message
    assert "MD5OfMessageAttributes" not in sent
    assert "SequenceNumber" not in sent
    assert await client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]) == {}
    assert await client.call("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0) == {}


async def test_attributes_travel_with_their_digests(client: Client) -> None:
    url = await client.create("orders")
    attributes = {
        "text": TEXT,
        "number": {"DataType": "Number.int", "StringValue": "1"},
        "data": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
    }
    sent = await client.call(
        "SendMessage",
        QueueUrl=url,
        MessageBody="a",
        MessageAttributes=attributes,
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": TRACE}},
    )
    assert sent["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"
    [message] = await client.receive(
        url, MessageAttributeNames=["All"], AttributeNames=["AWSTraceHeader"], VisibilityTimeout=0
    )
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"] == {"AWSTraceHeader": TRACE}
    [message] = await client.receive(url, MessageAttributeNames=["te.*"])
    assert message["MessageAttributes"] == {"text": TEXT}
    assert message["MD5OfMessageAttributes"] != sent["MD5OfMessageAttributes"]


async def test_a_trace_header_of_the_request_becomes_the_messages(client: Client) -> None:
    url = await client.create("orders")
    await client.with_headers(x_amzn_trace_id="Root=2").call("SendMessage", QueueUrl=url, MessageBody="a")
    [message] = await client.receive(url, AttributeNames=["AWSTraceHeader"])
    assert message["Attributes"] == {"AWSTraceHeader": "Root=2"}


async def test_system_attributes_are_told_to_those_who_ask(client: Client, clock: ManualClock) -> None:
    url = await client.create("orders")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="tenant")
    sent_at = str(clock.now_ms())
    await clock.advance(seconds=1)
    [message] = await client.receive(url, AttributeNames=["All"])
    assert message["Attributes"] == {
        "SenderId": "000000000000",
        "SentTimestamp": sent_at,
        "ApproximateReceiveCount": "1",
        "ApproximateFirstReceiveTimestamp": str(clock.now_ms()),
        "MessageGroupId": "tenant",
    }


async def test_both_names_of_the_system_attributes_count(endpoint: SqsEndpoint) -> None:
    client = Client(endpoint, "json")
    url = await client.create("orders")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    [message] = await client.receive(
        url, AttributeNames=["SenderId"], MessageSystemAttributeNames=["ApproximateReceiveCount", "NeverHeardOf"]
    )
    assert message["Attributes"] == {"SenderId": "000000000000", "ApproximateReceiveCount": "1"}


async def test_fifo_messages_have_sequence_numbers_that_sort_as_text(client: Client) -> None:
    url = await client.create("orders.fifo")
    numbers = []
    for number in range(3):
        sent = await client.call(
            "SendMessage",
            QueueUrl=url,
            MessageBody="a",
            MessageGroupId="g",
            MessageDeduplicationId=str(number),
        )
        numbers.append(sent["SequenceNumber"])
    assert numbers == sorted(numbers)
    assert {len(number) for number in numbers} == {20}
    messages = await client.receive(url, MaxNumberOfMessages=10, AttributeNames=["All"])
    assert [message["Attributes"]["SequenceNumber"] for message in messages] == numbers
    assert messages[0]["Attributes"]["MessageDeduplicationId"] == "0"


async def test_a_delay_of_zero_is_the_queues_own_on_a_fifo_queue(client: Client, clock: ManualClock) -> None:
    url = await client.create("orders.fifo", ContentBasedDeduplication="true", DelaySeconds="5")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="g", DelaySeconds=0)
    assert await client.bodies(url) == []
    await clock.advance(seconds=5)
    assert await client.bodies(url) == ["a"]


async def test_a_batch_is_answered_entry_by_entry(client: Client) -> None:
    url = await client.create("orders", MaximumMessageSize="1024")
    answer = await client.call(
        "SendMessageBatch",
        QueueUrl=url,
        Entries=[
            {"Id": "good", "MessageBody": "a", "MessageAttributes": {"text": TEXT}},
            {"Id": "long", "MessageBody": "x" * 1025},
            {"Id": "bad", "MessageBody": "\ufffe"},
            {"Id": "delayed", "MessageBody": "b", "DelaySeconds": 901},
            {"Id": "list", "MessageBody": "b", "MessageAttributes": {"l": {**TEXT, "StringListValues": ["x"]}}},
        ],
    )
    [good] = answer["Successful"]
    assert good["Id"] == "good"
    assert good["MD5OfMessageBody"] == "0cc175b9c0f1b6a831c399e269772661"
    assert good["MD5OfMessageAttributes"]
    failed = {entry["Id"]: entry for entry in answer["Failed"]}
    assert {entry_id: entry["Code"] for entry_id, entry in failed.items()} == {
        "long": "InvalidParameterValue",
        "bad": "InvalidMessageContents",
        "delayed": "InvalidParameterValue",
        "list": "AWS.SimpleQueueService.UnsupportedOperation",
    }
    assert all(entry["SenderFault"] for entry in failed.values())
    assert failed["long"]["Message"] == (
        "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes."
    )
    assert await client.bodies(url) == ["a"]


async def test_a_batch_without_failures_says_nothing_of_them(client: Client) -> None:
    url = await client.create("orders")
    answer = await client.call("SendMessageBatch", QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "a"}])
    assert set(answer) == {"Successful"}


async def test_messages_are_deleted_in_batches(client: Client) -> None:
    url = await client.create("orders")
    for body in "ab":
        await client.call("SendMessage", QueueUrl=url, MessageBody=body)
    first, second = await client.receive(url, MaxNumberOfMessages=10)
    answer = await client.call(
        "DeleteMessageBatch",
        QueueUrl=url,
        Entries=[
            {"Id": "1", "ReceiptHandle": first["ReceiptHandle"]},
            {"Id": "2", "ReceiptHandle": second["ReceiptHandle"]},
            {"Id": "3", "ReceiptHandle": "made up"},
        ],
    )
    assert answer["Successful"] == [{"Id": "1"}, {"Id": "2"}]
    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("3", "ReceiptHandleIsInvalid", True)


async def test_visibility_is_changed_one_by_one_and_in_batches(client: Client, clock: ManualClock) -> None:
    url = await client.create("orders")
    for body in "ab":
        await client.call("SendMessage", QueueUrl=url, MessageBody=body)
    first, second = await client.receive(url, MaxNumberOfMessages=10, VisibilityTimeout=30)
    await client.call(
        "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0
    )
    assert await client.bodies(url) == [first["Body"]]
    answer = await client.call(
        "ChangeMessageVisibilityBatch",
        QueueUrl=url,
        Entries=[
            {"Id": "1", "ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 100},
            {"Id": "2", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 100},
            {"Id": "3", "ReceiptHandle": second["ReceiptHandle"]},
            {"Id": "4", "ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 43_201},
        ],
    )
    assert answer["Successful"] == [{"Id": "1"}, {"Id": "2"}]
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [
        ("3", "MissingParameter"),
        ("4", "InvalidParameterValue"),
    ]
    await clock.advance(seconds=99)
    assert await client.bodies(url) == []
    await clock.advance(seconds=1)
    assert sorted(await client.bodies(url)) == ["a", "b"]


async def test_an_expired_handle_is_named_on_a_fifo_queue(client: Client, clock: ManualClock) -> None:
    url = await client.create("orders.fifo", ContentBasedDeduplication="true")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="g")
    [message] = await client.receive(url, VisibilityTimeout=1)
    await clock.advance(seconds=2)
    handle = message["ReceiptHandle"]
    with pytest.raises(Refusal) as refused:
        await client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
    assert refused.value.status == 400
    assert refused.value.code == "InvalidParameterValue"
    assert refused.value.message == (
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    )


def entries(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"Id": str(number), "MessageBody": "a", "ReceiptHandle": "h", **fields} for number in range(count)]


BATCHES = ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"]


@pytest.mark.parametrize("operation", BATCHES)
@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (
            entries(11),
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        (
            entries(1, Id="not good"),
            "AWS.SimpleQueueService.InvalidBatchEntryId",
            (
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long."
            ),
        ),
        (entries(2, Id="same"), "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "Id same repeated."),
    ],
)
async def test_batches_that_break_the_rules_are_refused_whole(
    client: Client, operation: str, given: list[dict[str, Any]], code: str, message: str
) -> None:
    url = await client.create("orders")
    fields = {"SendMessageBatch": {"Id", "MessageBody"}}.get(operation, {"Id", "ReceiptHandle"})
    kept = [{name: value for name, value in entry.items() if name in fields} for entry in given]
    with pytest.raises(Refusal) as refused:
        await client.call(operation, QueueUrl=url, Entries=kept)
    assert (refused.value.status, refused.value.code, refused.value.message) == (400, code, message)


@pytest.mark.parametrize("operation", BATCHES)
async def test_an_empty_batch_is_refused(client: Client, operation: str) -> None:
    url = await client.create("orders")
    with pytest.raises(Refusal) as refused:
        await client.call(operation, QueueUrl=url, Entries=[])
    assert refused.value.code == "AWS.SimpleQueueService.EmptyBatchRequest"
    assert refused.value.message == f"There should be at least one {operation}RequestEntry in the request."


async def test_a_batch_that_is_too_long_is_refused_whole(client: Client) -> None:
    url = await client.create("orders")
    given = [{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)]
    with pytest.raises(Refusal) as refused:
        await client.call("SendMessageBatch", QueueUrl=url, Entries=given)
    assert refused.value.code == "AWS.SimpleQueueService.BatchRequestTooLong"
    assert refused.value.message == "Batch requests cannot be longer than 1048576 bytes. You have sent 1200000 bytes."


async def test_a_fifo_batch_in_which_a_group_is_missing_is_refused_whole(client: Client) -> None:
    url = await client.create("orders.fifo", ContentBasedDeduplication="true")
    given = [{"Id": "1", "MessageBody": "a", "MessageGroupId": "g"}, {"Id": "2", "MessageBody": "b"}]
    with pytest.raises(Refusal) as refused:
        await client.call("SendMessageBatch", QueueUrl=url, Entries=given)
    assert refused.value.code == "InvalidParameterValue"
    assert refused.value.message == "The request must contain the parameter MessageGroupId."
    assert await client.bodies(url) == []


async def test_a_fifo_batch_in_which_a_deduplication_id_is_missing_is_refused_whole(client: Client) -> None:
    url = await client.create("orders.fifo")
    given = [
        {"Id": "1", "MessageBody": "a", "MessageGroupId": "g", "MessageDeduplicationId": "d"},
        {"Id": "2", "MessageBody": "b", "MessageGroupId": "g"},
    ]
    with pytest.raises(Refusal) as refused:
        await client.call("SendMessageBatch", QueueUrl=url, Entries=given)
    assert refused.value.code == "InvalidParameterValue"
    assert refused.value.message == (
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )
    assert await client.bodies(url) == []


SENDS: list[tuple[dict[str, Any], str, str]] = [
    ({"MessageBody": ""}, "MissingParameter", "The request must contain the parameter MessageBody."),
    ({"MessageBody": "\ufffe"}, "InvalidMessageContents", "Invalid characters found."),
    (
        {"MessageBody": "x" * 1_048_577},
        "InvalidParameterValue",
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
    ),
    (
        {"MessageAttributes": {"e": {"DataType": "String", "StringValue": ""}}},
        "InvalidParameterValue",
        "Message (user) attribute 'e' must contain a non-empty value of type 'String'.",
    ),
    (
        {"MessageAttributes": {"b": {"DataType": "String", "BinaryValue": b"x"}}},
        "InvalidParameterValue",
        "The message attribute 'b' with type 'String' must use the field of that type.",
    ),
    (
        {"MessageAttributes": {"l": {**TEXT, "StringListValues": ["x"]}}},
        "AWS.SimpleQueueService.UnsupportedOperation",
        "Message attribute list values in SendMessage operation are not supported.",
    ),
    (
        {"MessageSystemAttributes": {"Other": TEXT}},
        "InvalidParameterValue",
        "Message system attribute name 'Other' is invalid.",
    ),
    (
        {"MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}}},
        "InvalidParameterValue",
        "Message (system) attribute 'AWSTraceHeader' must contain a non-empty value of type 'String'.",
    ),
    (
        {"MessageDeduplicationId": "d"},
        "InvalidParameterValue",
        "Value d for parameter MessageDeduplicationId is invalid.",
    ),
    ({"DelaySeconds": 901}, "InvalidParameterValue", "Value 901 for parameter DelaySeconds is invalid."),
]


@pytest.mark.parametrize(("given", "code", "reason"), SENDS, ids=range(len(SENDS)))
async def test_bad_messages_are_refused(client: Client, given: dict[str, Any], code: str, reason: str) -> None:
    url = await client.create("orders")
    with pytest.raises(Refusal) as refused:
        await client.call("SendMessage", QueueUrl=url, **{"MessageBody": "a", **given})
    assert refused.value.code == code
    assert refused.value.message.startswith(reason)
    assert await client.bodies(url) == []


async def test_the_visibility_of_a_deleted_message_cannot_be_changed(client: Client) -> None:
    url = await client.create("orders")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    [message] = await client.receive(url)
    handle = message["ReceiptHandle"]
    await client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
    reason = (
        f"Value {handle} for parameter ReceiptHandle is invalid. "
        "Reason: Message does not exist or is not available for visibility timeout change."
    )
    change = {"ReceiptHandle": handle, "VisibilityTimeout": 42}
    with pytest.raises(Refusal) as refused:
        await client.call("ChangeMessageVisibility", QueueUrl=url, **change)
    assert (refused.value.status, refused.value.code) == (400, "InvalidParameterValue")
    assert refused.value.message == reason
    answer = await client.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[{"Id": "1", **change}])
    assert answer["Failed"] == [{"Id": "1", "SenderFault": True, "Code": "InvalidParameterValue", "Message": reason}]


async def test_a_fifo_message_needs_a_group(client: Client) -> None:
    url = await client.create("orders.fifo")
    with pytest.raises(Refusal) as refused:
        await client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageDeduplicationId="d")
    assert refused.value.code == "MissingParameter"
    assert refused.value.message == "The request must contain the parameter MessageGroupId."


@pytest.mark.parametrize(
    ("given", "span"),
    [
        ({"MaxNumberOfMessages": 0}, "between 1 and 10"),
        ({"MaxNumberOfMessages": 11}, "between 1 and 10"),
        ({"WaitTimeSeconds": 21}, ">= 0 and <= 20"),
        ({"WaitTimeSeconds": -1}, ">= 0 and <= 20"),
        ({"VisibilityTimeout": 43_201}, ">= 0 and <= 43200"),
    ],
)
async def test_receives_out_of_range_are_refused(client: Client, given: dict[str, int], span: str) -> None:
    url = await client.create("orders")
    [(name, value)] = given.items()
    with pytest.raises(Refusal) as refused:
        await client.call("ReceiveMessage", QueueUrl=url, **given)
    assert refused.value.code == "InvalidParameterValue"
    reason = f"Reason: Must be {span}, if provided."
    assert refused.value.message == f"Value {value} for parameter {name} is invalid. {reason}"


@pytest.mark.parametrize("limits", [Limits(in_flight_standard_max=1)])
async def test_too_many_messages_in_flight_are_over_the_limit(client: Client) -> None:
    url = await client.create("orders")
    for body in "ab":
        await client.call("SendMessage", QueueUrl=url, MessageBody=body)
    await client.receive(url)
    with pytest.raises(Refusal) as refused:
        await client.receive(url)
    assert (refused.value.status, refused.value.code) == (403, "OverLimit")


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        ("SendMessage", {"MessageBody": "a"}),
        ("SendMessageBatch", {"Entries": [{"Id": "1", "MessageBody": "a"}]}),
        (
            "SendMessageBatch",
            {"Entries": [{"Id": "1", "MessageBody": "a", "MessageSystemAttributes": {"Other": TEXT}}]},
        ),
        ("ReceiveMessage", {}),
        ("DeleteMessage", {"ReceiptHandle": "h"}),
        ("DeleteMessageBatch", {"Entries": [{"Id": "1", "ReceiptHandle": "h"}]}),
        ("ChangeMessageVisibility", {"ReceiptHandle": "h", "VisibilityTimeout": 1}),
        ("ChangeMessageVisibilityBatch", {"Entries": [{"Id": "1", "ReceiptHandle": "h"}]}),
        ("DeleteQueue", {}),
        ("PurgeQueue", {}),
        ("GetQueueAttributes", {}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("TagQueue", {"Tags": {"a": "b"}}),
        ("UntagQueue", {"TagKeys": ["a"]}),
        ("ListQueueTags", {}),
        ("ListDeadLetterSourceQueues", {}),
        ("AddPermission", {"Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["*"]}),
        ("RemovePermission", {"Label": "l"}),
    ],
)
async def test_a_queue_that_does_not_exist_is_refused(client: Client, operation: str, given: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        await client.call(operation, QueueUrl="http://localhost:9324/000000000000/missing", **given)
    assert refused.value.status == 400
    assert refused.value.code == "AWS.SimpleQueueService.NonExistentQueue"
    version = " for this wsdl version" if client.protocol == "query" else ""
    assert refused.value.message == f"The specified queue does not exist{version}."
