"""Stock boto3 against a real server process on both stores: every operation, and what passes through unharmed."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.end_to_end.running import RunningServer
from tests.support.sqs_model import sqs_model

ACCOUNT = "000000000000"
BINARY = bytes(range(256))
ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "grüße\r\n\t<&>"},
    "count": {"DataType": "Number.int", "StringValue": "-12"},
    "blob": {"DataType": "Binary.gif", "BinaryValue": BINARY},
}


@pytest.fixture
def sqs(shared_server: RunningServer) -> Any:
    """A client with its checks of digests, which are on unless they are turned off."""
    return shared_server.sqs()


@pytest.fixture
def queue_url(sqs: Any, queue_name: str) -> str:
    return str(sqs.create_queue(QueueName=queue_name)["QueueUrl"])


def entries_of(messages: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return [{"Id": str(index), "ReceiptHandle": each["ReceiptHandle"], **more} for index, each in enumerate(messages)]


def test_every_operation_answers_stock_boto3(sqs: Any, queue_name: str) -> None:
    """One walk through all of them; what botocore's model knows and the walk leaves out fails it."""
    called: set[str] = set()
    sqs.meta.events.register("before-call.sqs", lambda model, **_: called.add(model.name))
    dead = sqs.create_queue(QueueName=f"{queue_name[:70]}-dead", tags={"kind": "dead"})["QueueUrl"]
    dead_arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    url = sqs.create_queue(QueueName=queue_name)["QueueUrl"]
    assert sqs.get_queue_url(QueueName=queue_name)["QueueUrl"] == url
    assert url in sqs.list_queues(QueueNamePrefix=queue_name, MaxResults=10)["QueueUrls"]
    redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": "1"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": redrive, "VisibilityTimeout": "60"})
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sqs.tag_queue(QueueUrl=url, Tags={"team": "tea", "tier": "2"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["tier"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "tea"}
    sqs.add_permission(QueueUrl=url, Label="friends", AWSAccountIds=["111122223333"], Actions=["SendMessage"])
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    assert json.loads(policy)["Statement"][0]["Sid"] == "friends"
    sqs.remove_permission(QueueUrl=url, Label="friends")
    walk_messages(sqs, url)
    walk_moves(sqs, url, dead, dead_arn)
    sqs.purge_queue(QueueUrl=dead)
    for each in (url, dead):
        sqs.delete_queue(QueueUrl=each)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=queue_name)
    assert called == set(sqs_model("json").operation_names)


def walk_messages(sqs: Any, url: str) -> None:
    sent = sqs.send_message(QueueUrl=url, MessageBody="one")
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "one")
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=120)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    batch = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    assert len(sqs.send_message_batch(QueueUrl=url, Entries=batch)["Successful"]) == 10
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    changed = sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries_of(messages, VisibilityTimeout=120))
    assert len(changed["Successful"]) == 10
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=entries_of(messages))
    assert len(deleted["Successful"]) == 10


def walk_moves(sqs: Any, url: str, dead: str, dead_arn: str) -> None:
    batch = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    sqs.send_message_batch(QueueUrl=url, Entries=batch)
    assert len(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)["Messages"]) == 10
    assert "Messages" not in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)  # Once was often enough.
    [letter] = sqs.receive_message(QueueUrl=dead, MessageSystemAttributeNames=["All"], VisibilityTimeout=0)["Messages"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(url.rpartition("/")[2])
    # At one a second it takes ten, so it still runs when it is cancelled.
    task = sqs.start_message_move_task(SourceArn=dead_arn, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    [listed] = sqs.list_message_move_tasks(SourceArn=dead_arn)["Results"]
    assert (listed["Status"], listed["TaskHandle"]) == ("RUNNING", task)
    assert sqs.cancel_message_move_task(TaskHandle=task)["ApproximateNumberOfMessagesMoved"] < 10


def test_a_message_arrives_as_it_was_sent_with_all_its_attributes(sqs: Any, queue_url: str) -> None:
    body = "line\r\n\ttab “quotes” \U0001f375 <&>"
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = sqs.send_message(
        QueueUrl=queue_url, MessageBody=body, MessageAttributes=ATTRIBUTES, MessageSystemAttributes=trace
    )
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
    assert {"MD5OfMessageAttributes", "MD5OfMessageSystemAttributes"} <= set(sent)
    [message] = sqs.receive_message(
        QueueUrl=queue_url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
    )["Messages"]
    assert message["Body"] == body
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]


def test_a_receive_gets_the_attributes_that_it_asks_for(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x", MessageAttributes=ATTRIBUTES)
    asked = {"MessageAttributeNames": ["co.*", "blob"], "MessageSystemAttributeNames": ["SenderId"]}
    [message] = sqs.receive_message(QueueUrl=queue_url, **asked)["Messages"]
    assert set(message["MessageAttributes"]) == {"count", "blob"}
    assert message["Attributes"] == {"SenderId": ACCOUNT}


def test_a_message_of_the_largest_size_arrives(sqs: Any, queue_url: str) -> None:
    body = "é" * 524_288
    sqs.send_message(QueueUrl=queue_url, MessageBody=body)
    [message] = sqs.receive_message(QueueUrl=queue_url)["Messages"]
    assert message["Body"] == body
    with pytest.raises(ClientError, match="1048576"):
        sqs.send_message(QueueUrl=queue_url, MessageBody=body + "x")


def test_a_batch_answers_for_each_of_its_entries(sqs: Any, queue_url: str) -> None:
    entries = [
        {"Id": "good", "MessageBody": "kept", "MessageAttributes": ATTRIBUTES},
        {"Id": "bad", "MessageBody": "late", "DelaySeconds": 901},
    ]
    answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["good"]
    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("bad", "InvalidParameterValue", True)
    [message] = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10)["Messages"]
    assert message["Body"] == "kept"


def test_fifo_keeps_order_deduplicates_and_repeats_a_receive(sqs: Any, queue_name: str) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{queue_name}.fifo", Attributes=attributes)["QueueUrl"]
    entries = [{"Id": str(n), "MessageBody": f"body-{n}", "MessageGroupId": f"group-{n % 2}"} for n in range(6)]
    first = sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    again = sqs.send_message(QueueUrl=url, MessageBody="body-0", MessageGroupId="group-0")
    assert (again["MessageId"], again["SequenceNumber"]) == (first[0]["MessageId"], first[0]["SequenceNumber"])
    ask = {"MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], "ReceiveRequestAttemptId": "attempt"}
    messages = sqs.receive_message(QueueUrl=url, **ask)["Messages"]
    assert sqs.receive_message(QueueUrl=url, **ask)["Messages"] == messages
    for group in ("group-0", "group-1"):
        bodies = [each["Body"] for each in messages if each["Attributes"]["MessageGroupId"] == group]
        assert bodies == [f"body-{n}" for n in range(6) if f"group-{n % 2}" == group]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    assert "Failed" not in sqs.delete_message_batch(QueueUrl=url, Entries=entries_of(messages))


def test_a_long_poll_ends_when_a_message_comes(sqs: Any, shared_server: RunningServer, queue_url: str) -> None:
    received: list[str] = []

    def poll() -> None:
        [message] = shared_server.sqs().receive_message(QueueUrl=queue_url, WaitTimeSeconds=20)["Messages"]
        received.append(message["Body"])

    poller = threading.Thread(target=poll)
    poller.start()
    sqs.send_message(QueueUrl=queue_url, MessageBody="at last")
    poller.join(timeout=15)
    assert received == ["at last"]


@pytest.mark.parametrize(
    ("operation", "parameters", "modelled", "code"),
    [
        ("receive_message", {"QueueUrl": "absent"}, "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
        ("delete_message", {"ReceiptHandle": "none"}, "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
        ("set_queue_attributes", {"Attributes": {"Nil": "1"}}, "InvalidAttributeName", "InvalidAttributeName"),
        ("send_message_batch", {"Entries": []}, "EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest"),
    ],
)
def test_errors_are_the_classes_that_boto3_knows(
    sqs: Any, queue_url: str, operation: str, parameters: dict[str, Any], modelled: str, code: str
) -> None:
    with pytest.raises(getattr(sqs.exceptions, modelled)) as caught:
        getattr(sqs, operation)(**{"QueueUrl": queue_url} | parameters)
    assert caught.value.response["Error"]["QueryErrorCode"] == modelled
    assert caught.value.response["Error"]["Code"] == code
