"""Connections cut after the commit and before the answer: stock boto3 tries again by itself, and nothing doubles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.end_to_end.cutting_proxy import Cut, CuttingProxy
from tests.end_to_end.running import REGION, RunningServer

EVERYTHING = {"MessageSystemAttributeNames": ["All"], "MaxNumberOfMessages": 10}

every_cut = pytest.mark.parametrize("cut", Cut)


@pytest.fixture
def proxy(shared_server: RunningServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(shared_server.url) as running:
        yield running


@pytest.fixture
def sqs(proxy: CuttingProxy) -> Any:
    """Stock boto3 with nothing but a place and a key, behind the proxy."""
    session = boto3.session.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name=REGION)
    return session.client("sqs", endpoint_url=proxy.url)


@pytest.fixture
def queue_url(sqs: Any, queue_name: str) -> str:
    return str(sqs.create_queue(QueueName=queue_name)["QueueUrl"])


@pytest.fixture
def fifo_url(sqs: Any, queue_name: str) -> str:
    # Without content-based deduplication, and with ids of its own for each message: FIFO's rules hide no double.
    return str(sqs.create_queue(QueueName=f"{queue_name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"])


def retries_of(answer: dict[str, Any]) -> int:
    return int(answer["ResponseMetadata"]["RetryAttempts"])


def stored(sqs: Any, queue_url: str) -> list[tuple[str, str]]:
    """Return what the queue holds, as ids and bodies, and nothing of it twice."""
    found: list[tuple[str, str]] = []
    while messages := sqs.receive_message(QueueUrl=queue_url, **EVERYTHING).get("Messages"):
        assert {message["Attributes"]["ApproximateReceiveCount"] for message in messages} == {"1"}
        found += [(message["MessageId"], message["Body"]) for message in messages]
        handles = [{"Id": str(index), "ReceiptHandle": each["ReceiptHandle"]} for index, each in enumerate(messages)]
        assert "Failed" not in sqs.delete_message_batch(QueueUrl=queue_url, Entries=handles)
    return found


@every_cut
def test_a_send_that_is_retried_is_stored_once_with_the_first_answer(
    sqs: Any, proxy: CuttingProxy, queue_url: str, cut: Cut
) -> None:
    proxy.cut_next(cut)
    sent = sqs.send_message(QueueUrl=queue_url, MessageBody="once")
    assert retries_of(sent) == 1
    [first] = proxy.cut_answers
    assert sent["MessageId"].encode() in first
    assert stored(sqs, queue_url) == [(sent["MessageId"], "once")]


def test_a_send_that_is_retried_again_and_again_is_stored_once(sqs: Any, proxy: CuttingProxy, queue_url: str) -> None:
    proxy.cut_next(Cut.RESET, Cut.CLOSE)
    sent = sqs.send_message(QueueUrl=queue_url, MessageBody="once")
    assert retries_of(sent) == 2
    assert all(sent["MessageId"].encode() in answer for answer in proxy.cut_answers)
    assert stored(sqs, queue_url) == [(sent["MessageId"], "once")]


def test_two_sends_of_the_same_thing_are_two_messages(sqs: Any, proxy: CuttingProxy, queue_url: str) -> None:
    """What is told apart is the call, not what it says."""
    first = sqs.send_message(QueueUrl=queue_url, MessageBody="the same")
    proxy.cut_next(Cut.CLOSE)
    second = sqs.send_message(QueueUrl=queue_url, MessageBody="the same")
    assert sorted(stored(sqs, queue_url)) == sorted(
        [(first["MessageId"], "the same"), (second["MessageId"], "the same")]
    )


def test_a_batch_that_is_retried_is_stored_once_with_the_first_answer_for_each_entry(
    sqs: Any, proxy: CuttingProxy, queue_url: str
) -> None:
    entries: list[dict[str, Any]] = [{"Id": f"entry-{number}", "MessageBody": f"body-{number}"} for number in range(9)]
    entries.append({"Id": "bad", "MessageBody": "refused", "DelaySeconds": 100_000})
    proxy.cut_next(Cut.CLOSE)
    answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
    assert retries_of(answer) == 1
    assert [failed["Id"] for failed in answer["Failed"]] == ["bad"]
    [first] = proxy.cut_answers
    sent = {entry["Id"]: entry["MessageId"] for entry in answer["Successful"]}
    assert all(message_id.encode() in first for message_id in sent.values())
    expected = sorted((sent[f"entry-{number}"], f"body-{number}") for number in range(9))
    assert sorted(stored(sqs, queue_url)) == expected


def test_a_fifo_send_that_is_retried_is_stored_once_in_its_place(sqs: Any, proxy: CuttingProxy, fifo_url: str) -> None:
    sequence_numbers = []
    expected = []
    for number in range(3):
        if number == 1:
            proxy.cut_next(Cut.CLOSE)
        sent = sqs.send_message(
            QueueUrl=fifo_url, MessageBody=str(number), MessageGroupId="group", MessageDeduplicationId=f"one-{number}"
        )
        assert retries_of(sent) == (number == 1)
        assert number != 1 or sent["SequenceNumber"].encode() in proxy.cut_answers[0]
        sequence_numbers.append(sent["SequenceNumber"])
        expected.append((sent["MessageId"], str(number)))
    assert sequence_numbers == sorted(set(sequence_numbers))
    assert stored(sqs, fifo_url) == expected


def test_a_send_is_not_repeated_although_its_message_was_consumed_before_the_retry(
    sqs: Any, proxy: CuttingProxy, shared_server: RunningServer, queue_url: str
) -> None:
    """What consumers did in between changes nothing: the answer is the first one's, and the queue stays empty."""
    consumer = shared_server.sqs()

    def consume(**_: object) -> None:
        [message] = consumer.receive_message(QueueUrl=queue_url)["Messages"]
        consumer.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])

    # Between the two attempts, at the instant at which botocore decides to try again.
    sqs.meta.events.register_last("needs-retry.sqs.SendMessage", _once(consume))
    proxy.cut_next(Cut.CLOSE)
    sent = sqs.send_message(QueueUrl=queue_url, MessageBody="consumed already")
    assert retries_of(sent) == 1
    assert sent["MessageId"].encode() in proxy.cut_answers[0]
    assert stored(sqs, queue_url) == []


def _once(work: Any) -> Any:
    pending = [work]

    def call(**event: object) -> None:
        if pending:
            pending.pop()(**event)

    return call


@every_cut
def test_a_receive_that_is_retried_gets_its_messages_again_with_handles_that_work(
    sqs: Any, proxy: CuttingProxy, queue_url: str, cut: Cut
) -> None:
    sent = {sqs.send_message(QueueUrl=queue_url, MessageBody=str(number))["MessageId"] for number in range(3)}
    proxy.cut_next(cut)
    # They are hidden for twelve hours: only the very same receive can get at them.
    answer = sqs.receive_message(QueueUrl=queue_url, VisibilityTimeout=43_200, **EVERYTHING)
    assert retries_of(answer) == 1
    messages = answer["Messages"]
    assert {message["MessageId"] for message in messages} == sent
    assert {message["Attributes"]["ApproximateReceiveCount"] for message in messages} == {"1"}
    assert all(message["ReceiptHandle"].encode() in proxy.cut_answers[0] for message in messages)
    for message in messages:
        sqs.change_message_visibility(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=600)
        sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    counts = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == counts["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_fifo_receive_that_is_retried_gets_its_messages_again_in_order(
    sqs: Any, proxy: CuttingProxy, fifo_url: str
) -> None:
    for number in range(3):
        sqs.send_message(
            QueueUrl=fifo_url, MessageBody=str(number), MessageGroupId="group", MessageDeduplicationId=f"one-{number}"
        )
    proxy.cut_next(Cut.CLOSE)
    answer = sqs.receive_message(QueueUrl=fifo_url, VisibilityTimeout=43_200, **EVERYTHING)
    assert retries_of(answer) == 1
    assert [message["Body"] for message in answer["Messages"]] == ["0", "1", "2"]
    for message in answer["Messages"]:
        sqs.delete_message(QueueUrl=fifo_url, ReceiptHandle=message["ReceiptHandle"])
    assert stored(sqs, fifo_url) == []


def test_a_delete_that_is_retried_succeeds(sqs: Any, proxy: CuttingProxy, fifo_url: str) -> None:
    sqs.send_message(QueueUrl=fifo_url, MessageBody="done", MessageGroupId="group", MessageDeduplicationId="one")
    [message] = sqs.receive_message(QueueUrl=fifo_url)["Messages"]
    proxy.cut_next(Cut.CLOSE)
    answer = sqs.delete_message(QueueUrl=fifo_url, ReceiptHandle=message["ReceiptHandle"])
    assert retries_of(answer) == 1
