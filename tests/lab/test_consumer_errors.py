"""Calls of the consumer that fail: each error ends it or is said, and none is taken for a success."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from penstock.lab.consumer import Consumer
from penstock.lab.consumer_settings import ConsumerSettings
from penstock.lab.observing import Observer
from penstock.testing import RunningServer
from tests.support.sqs_services import Refusing


@pytest.fixture
def queue_url(sqs: Any) -> str:
    return str(sqs.create_queue(QueueName="orders")["QueueUrl"])


def consumer_of(queue_url: str, **variables: object) -> Consumer:
    """Make a consumer that is run by hand, and ends soon after its last message."""
    given = {"WAIT_TIME_SECONDS": 0, "IDLE_TIMEOUT_SECONDS": 0.2, "MAX_MESSAGES": 10, **variables}
    settings = ConsumerSettings.read({"QUEUE_URL": queue_url} | {name: str(value) for name, value in given.items()})
    return Consumer(settings, Observer({}))


def send(sqs: Any, queue_url: str, *bodies: str) -> None:
    for body in bodies:
        fifo = {"MessageGroupId": body, "MessageDeduplicationId": body} if queue_url.endswith(".fifo") else {}
        sqs.send_message(QueueUrl=queue_url, MessageBody=body, **fifo)


def left(sqs: Any, queue_url: str) -> int:
    """Return how many messages a queue has, visible or not."""
    attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    return int(attributes["ApproximateNumberOfMessages"]) + int(attributes["ApproximateNumberOfMessagesNotVisible"])


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidClientTokenId", "NonExistentQueue", "InternalError"])
def test_a_receive_that_fails_ends_it(queue_url: str, code: str) -> None:
    consumer = consumer_of(queue_url)
    Refusing(consumer.sqs, "ReceiveMessage", times=1, code=code)
    with pytest.raises(ClientError, match=code):
        consumer.run()
    consumer.close()


def test_an_endpoint_that_cannot_be_reached_ends_it() -> None:
    consumer = consumer_of("http://127.0.0.1:9/000000000000/orders")
    with pytest.raises(EndpointConnectionError):
        consumer.run()
    consumer.close()


@pytest.mark.parametrize("flaw", ["", "whole-batch"])
def test_an_error_of_the_work_ends_it_and_deletes_nothing(sqs: Any, queue_url: str, tmp_path: Path, flaw: str) -> None:
    send(sqs, queue_url, "a", "b")
    consumer = consumer_of(queue_url, FLAWS=flaw, SIDE_EFFECT_LOG_PATH=tmp_path / "missing" / "log")
    with pytest.raises(FileNotFoundError):
        consumer.run()
    consumer.close()
    assert left(sqs, queue_url) == 2


@pytest.mark.parametrize("flaw", ["", "whole-batch", "delete-on-receive"])
def test_a_delete_that_is_denied_ends_it(sqs: Any, queue_url: str, flaw: str) -> None:
    send(sqs, queue_url, "a", "b")
    consumer = consumer_of(queue_url, FLAWS=flaw)
    Refusing(consumer.sqs, "DeleteMessageBatch", times=10, code="AccessDenied", status=403)
    with pytest.raises(ClientError, match="AccessDenied"):
        consumer.run()
    consumer.close()


@pytest.mark.parametrize(
    "variables",
    [
        {"SIDE_EFFECT_DELAY_SECONDS": 0.02, "HEARTBEAT_SECONDS": 0.01},
        {"FAIL_RECEIVES": 1, "RETRY_BASE_SECONDS": 1},
    ],
    ids=["heartbeat", "retry"],
)
def test_a_change_of_visibility_that_is_denied_ends_it(sqs: Any, queue_url: str, variables: dict[str, object]) -> None:
    send(sqs, queue_url, "a")
    consumer = consumer_of(queue_url, **variables)
    Refusing(consumer.sqs, "ChangeMessageVisibilityBatch", times=10, code="AccessDenied", status=403)
    with pytest.raises(ClientError, match="AccessDenied"):
        consumer.run()
    consumer.close()


def test_a_release_that_is_denied_ends_it(sqs: Any, queue_url: str) -> None:
    send(sqs, queue_url, "a")
    consumer = consumer_of(queue_url)
    consumer.sqs.meta.events.register("before-call.sqs.ReceiveMessage", lambda **_: consumer.stop())
    Refusing(consumer.sqs, "ChangeMessageVisibilityBatch", times=10, code="AccessDenied", status=403)
    with pytest.raises(ClientError, match="AccessDenied"):
        consumer.run()
    consumer.close()


@pytest.mark.parametrize("flaw", ["", "delete-on-receive"])
def test_a_stale_receipt_handle_is_one_warning(
    server: RunningServer, sqs: Any, caplog: pytest.LogCaptureFixture, flaw: str
) -> None:
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "30"}
    url = str(sqs.create_queue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"])
    send(sqs, url, "a")
    consumer = consumer_of(url, MESSAGE_LIMIT=1, FLAWS=flaw)
    consumer.sqs.meta.events.register(
        "before-call.sqs.DeleteMessageBatch", lambda **_: server.clock.advance(seconds=31)
    )
    with caplog.at_level(logging.INFO, "penstock"):
        assert consumer.run() == 0
    consumer.close()
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["INFO", "WARNING"]
    assert said[0][1].startswith("consuming ")
    assert "receipt handle is stale" in said[1][1]


def test_each_message_of_a_whole_batch_is_hidden_as_its_failure_says(sqs: Any, queue_url: str) -> None:
    send(sqs, queue_url, "a", "b")
    consumer = consumer_of(queue_url, FLAWS="whole-batch", FAIL_RECEIVES=1, RETRY_BASE_SECONDS=7)
    changes = Refusing(consumer.sqs, "ChangeMessageVisibilityBatch", times=0)
    assert consumer.run() == 0
    consumer.close()
    assert [entry["VisibilityTimeout"] for call in changes.calls for entry in call["Entries"]] == [7, 7]


def test_a_whole_batch_can_be_deleted_on_receive(sqs: Any, queue_url: str) -> None:
    send(sqs, queue_url, "a", "b")
    consumer = consumer_of(queue_url, FLAWS="whole-batch,delete-on-receive", FAIL_RECEIVES=1)
    assert consumer.run() == 0
    consumer.close()
    assert left(sqs, queue_url) == 0


def test_a_signal_after_the_work_does_not_fail_the_end(sqs: Any, queue_url: str) -> None:
    consumer = consumer_of(queue_url)
    assert consumer.run() == 0
    consumer.stop()
    consumer.close()
