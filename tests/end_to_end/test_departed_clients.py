"""Clients that leave before their answer is written: their messages are given back at once, at no cost in receives."""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for four calls here.
import pytest

from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer, receive_bytes

TWELVE_HOURS_S = 43_200
LARGE = "x" * 1_048_576


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


Leave = Callable[[socket.socket], None]
ways_to_leave = pytest.mark.parametrize("leave", [close, reset])


@pytest.fixture
def sqs(shared_server: RunningServer) -> Any:
    return shared_server.sqs()


@pytest.fixture
def queue_url(sqs: Any, queue_name: str) -> str:
    attributes = {"VisibilityTimeout": str(TWELVE_HOURS_S)}
    return str(sqs.create_queue(QueueName=queue_name, Attributes=attributes)["QueueUrl"])


def narrow_connection(server: RunningServer) -> socket.socket:
    """Connect with so small a buffer that a large answer cannot leave the server unless it is read."""
    address = urlsplit(server.url)
    assert address.hostname is not None
    assert address.port is not None
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(STOP_TIMEOUT_S)
    connection.connect((address.hostname, address.port))
    return connection


def receive_all(sqs: Any, queue_url: str, count: int) -> list[dict[str, Any]]:
    """Receive this many messages; a poll waits, so what is given back during it is found."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        answer = sqs.receive_message(
            QueueUrl=queue_url, WaitTimeSeconds=20, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        )
        assert "Messages" in answer, "they did not come back"
        found += answer["Messages"]
    return found


@ways_to_leave
def test_an_answer_that_was_never_written_whole_gives_its_messages_back(
    sqs: Any, shared_server: RunningServer, queue_url: str, leave: Leave
) -> None:
    # Ten megabytes are more than the buffers of both ends hold.
    sent = {sqs.send_message(QueueUrl=queue_url, MessageBody=LARGE)["MessageId"] for _ in range(10)}
    connection = narrow_connection(shared_server)
    connection.sendall(receive_bytes(queue_url, wait_s=0).replace(b"Action=", b"MaxNumberOfMessages=10&Action="))
    assert connection.recv(1) == b"H"  # So they are leased, and the answer is on its way.
    leave(connection)
    messages = receive_all(sqs, queue_url, 10)
    assert {message["MessageId"] for message in messages} == sent
    assert {message["Attributes"]["ApproximateReceiveCount"] for message in messages} == {"1"}


@ways_to_leave
def test_a_client_that_is_gone_when_its_receive_is_read_gets_nothing(
    sqs: Any, shared_server: RunningServer, queue_url: str, leave: Leave
) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="for somebody who is there")
    server = psutil.Process(shared_server.process.pid)
    for _ in range(5):
        connection = shared_server.connect()
        assert shared_server.get("/healthz") == {"status": "ok"}  # So the connection was accepted.
        server.suspend()  # So that it finds the request and the end of the connection together.
        connection.sendall(receive_bytes(queue_url, wait_s=0))
        leave(connection)
        server.resume()
    [message] = receive_all(sqs, queue_url, 1)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


@ways_to_leave
def test_a_poller_that_leaves_at_the_instant_of_a_send_costs_nothing(
    sqs: Any, shared_server: RunningServer, queue_url: str, leave: Leave
) -> None:
    server = psutil.Process(shared_server.process.pid)
    for number in range(5):
        poller = shared_server.connect()
        poller.sendall(receive_bytes(queue_url, wait_s=20))
        assert shared_server.get("/healthz") == {"status": "ok"}  # So the poll before it was read.
        sender = threading.Thread(target=sqs.send_message, kwargs={"QueueUrl": queue_url, "MessageBody": str(number)})
        server.send_signal(signal.SIGSTOP)
        sender.start()
        leave(poller)
        server.send_signal(signal.SIGCONT)
        sender.join(STOP_TIMEOUT_S)
        [message] = receive_all(sqs, queue_url, 1)
        assert message["Body"] == str(number)
        assert message["Attributes"]["ApproximateReceiveCount"] == "1"
