"""A real server process and stock boto3, on both stores."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.running import REGION, RunningServer, read_all, receive_bytes

pytestmark = pytest.mark.slow


def body_of(answer: dict[str, Any]) -> str:
    [message] = answer["Messages"]
    return str(message["Body"])


def test_a_message_lives_from_send_to_delete(server: RunningServer) -> None:
    sqs = server.sqs()
    queue_url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    assert queue_url.startswith(server.url)
    sent = sqs.send_message(QueueUrl=queue_url, MessageBody="tea for two")
    [message] = sqs.receive_message(QueueUrl=queue_url)["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "tea for two")
    assert "Messages" not in sqs.receive_message(QueueUrl=queue_url)
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    counts = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_long_poll_gets_what_is_sent_meanwhile(server: RunningServer) -> None:
    sqs = server.sqs()
    queue_url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    received: list[str] = []

    def poll() -> None:
        received.append(body_of(server.sqs().receive_message(QueueUrl=queue_url, WaitTimeSeconds=20)))

    poller = threading.Thread(target=poll)
    poller.start()
    sqs.send_message(QueueUrl=queue_url, MessageBody="at last")
    poller.join(timeout=15)
    assert received == ["at last"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopping_server_ends_long_polls_with_an_empty_answer(server: RunningServer, how: signal.Signals) -> None:
    queue_url = server.sqs().create_queue(QueueName="orders")["QueueUrl"]
    with server.connect() as idle, server.connect() as poller:
        poller.sendall(receive_bytes(queue_url, wait_s=20))
        assert server.get("/healthz") == {"status": "ok"}  # So the poll before it was read.
        assert server.stop(how) == (0, "")
        answer = read_all(poller)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"ReceiveMessageResult" in answer
        assert b"<Message>" not in answer
        assert read_all(idle) == b""
    assert "Traceback" not in server.errors.read_text()


def test_a_client_that_leaves_during_a_long_poll_costs_nothing(server: RunningServer) -> None:
    sqs = server.sqs()
    queue_url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    for _ in range(10):
        with server.connect() as poller:
            poller.sendall(receive_bytes(queue_url, wait_s=20))
            assert server.get("/healthz") == {"status": "ok"}
    sqs.send_message(QueueUrl=queue_url, MessageBody="for somebody who is there")
    [message] = sqs.receive_message(
        QueueUrl=queue_url, WaitTimeSeconds=10, MessageSystemAttributeNames=["ApproximateReceiveCount"]
    )["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_new_server_finds_what_the_last_one_was_given(store_url: str, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--store", store_url)
    with RunningServer(tmp_path, *arguments) as first:
        sqs = first.sqs()
        queue_url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        sqs.send_message(QueueUrl=queue_url, MessageBody="kept")
        assert first.stop() == (0, "")
    with RunningServer(tmp_path, *arguments) as second:
        sqs = second.sqs()
        queue_url = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
        assert body_of(sqs.receive_message(QueueUrl=queue_url, WaitTimeSeconds=5)) == "kept"


def test_the_server_tells_how_it_is_and_what_it_holds(server: RunningServer) -> None:
    sqs = server.sqs()
    urls = [sqs.create_queue(QueueName=f"queue-{number}")["QueueUrl"] for number in range(3)]
    sqs.send_message(QueueUrl=urls[2], MessageBody="one")
    assert server.get("/readyz") == {"status": "ready"}
    first = server.get(f"/stats?region={REGION}&limit=2")
    assert [queue["name"] for queue in first["queues"]] == ["queue-0", "queue-1"]
    rest = server.get(f"/stats?region={REGION}&after={first['after']}")
    [last] = rest["queues"]
    assert (last["name"], last["visible"], last["in_flight"], last["delayed"]) == ("queue-2", 1, 0, 0)
    assert rest["after"] is None


def test_time_that_is_moved_by_hand_ends_leases_and_retention(store_url: str, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--store", store_url, "--clock", "manual")
    with RunningServer(tmp_path, *arguments) as server:
        sqs = server.sqs()
        queue_url = sqs.create_queue(QueueName="orders", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
        sqs.send_message(QueueUrl=queue_url, MessageBody="again")
        for _ in range(2):
            assert body_of(sqs.receive_message(QueueUrl=queue_url)) == "again"
            assert "Messages" not in sqs.receive_message(QueueUrl=queue_url)
            server.post("/_penstock/clock/advance", {"seconds": 600})
        server.post("/_penstock/clock/advance", {"seconds": 14 * 24 * 3_600})
        assert "Messages" not in sqs.receive_message(QueueUrl=queue_url)
        assert server.stop() == (0, "")
