"""Clients that are too slow for their own good: they are cut off in time, and nobody else notices them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest

from tests.end_to_end.cutting_proxy import read_message
from tests.end_to_end.running import RunningServer, many_files, receive_bytes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLIENT_TIMEOUT_S = 4
"""Time enough for one who is not slow, however busy the machine is."""
OF_EACH_KIND = 200
NOT_READING = 20
FILES = 2 * 5 * OF_EACH_KIND
LARGE_BYTES = 1_000_000
READ_AHEAD = 16
MEMORY_GROWTH_BYTES_MAX = 128 * 1024 * 1024
"""All answers that are asked for and not read, together, are more than twice as much."""
MEMORY_LEAK_BYTES_MAX = 32 * 1024 * 1024

SQS = b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
KINDS = {
    "idle": (b"", b""),
    "headers": (b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"x"),
    "body": (SQS + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "chunks": (SQS + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
}
"""How slow requests begin, and how they go on."""


class SlowClient:
    """Begins a request, and goes on with it a little at a time, without end."""

    def __init__(self, connection: socket.socket, beginning: bytes, piece: bytes) -> None:
        self.port: int = connection.getsockname()[1]
        self._connection = connection
        self._piece = piece
        self._send(beginning)

    def go_on(self) -> None:
        self._send(self._piece)

    def heard(self) -> bytes:
        """Return all that the server has said until it cut the connection."""
        heard = b""
        with contextlib.suppress(ConnectionError):
            while part := self._connection.recv(65_536):
                heard += part
        return heard

    def _send(self, part: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # It has been cut off.
            self._connection.sendall(part)


class Crowd:
    """Slow clients of every kind, all at once, and one that is not slow."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._process = psutil.Process(server.process.pid)
        self._sqs = server.sqs()
        self._orders = self._sqs.create_queue(QueueName="orders")["QueueUrl"]
        self._large = self._sqs.create_queue(QueueName="large")["QueueUrl"]
        self._sqs.send_message(QueueUrl=self._large, MessageBody="x" * LARGE_BYTES)

    def memory_bytes(self) -> int:
        return int(self._process.memory_info().rss)

    def come_and_be_cut_off(self) -> int:
        """Return the most memory that the server took meanwhile."""
        most_bytes = 0
        with contextlib.ExitStack() as stack:
            slow = [
                SlowClient(stack.enter_context(self._server.connect()), *kind)
                for kind in KINDS.values()
                for _ in range(OF_EACH_KIND)
            ]
            # Each receive leaves the message visible for the next.
            unread = receive_bytes(self._large, hide_s=0) * READ_AHEAD
            not_reading = [
                SlowClient(stack.enter_context(self._server.connect()), unread, b"") for _ in range(NOT_READING)
            ]
            ports = {client.port for client in (*slow, *not_reading)}
            while ports & self._connected():
                for client in slow:
                    client.go_on()
                self._be_served()
                most_bytes = max(most_bytes, self.memory_bytes())
            assert {client.heard() for client in slow} == {b""}
            unheard = [client.heard() for client in not_reading]
            assert any(heard.startswith(b"HTTP/1.1 200 ") for heard in unheard)
            assert all(len(heard) < READ_AHEAD * LARGE_BYTES for heard in unheard)
        return most_bytes

    def _connected(self) -> set[int]:
        """Return the clients' ports of the connections that the server still has."""
        return {connection.raddr.port for connection in self._process.net_connections("tcp") if connection.raddr}

    def _be_served(self) -> None:
        sent = self._sqs.send_message(QueueUrl=self._orders, MessageBody="tea")
        [message] = self._sqs.receive_message(QueueUrl=self._orders)["Messages"]
        assert message["MessageId"] == sent["MessageId"]
        self._sqs.delete_message(QueueUrl=self._orders, ReceiptHandle=message["ReceiptHandle"])


@pytest.fixture
def impatient_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server whose clients have to be quick. Its clock stands still, so that a long poll lasts as long as it must."""
    arguments = ("--port", "0", "--store", "memory:", "--clock", "manual", "--client-timeout", str(CLIENT_TIMEOUT_S))
    with many_files(FILES), RunningServer(tmp_path, *arguments) as server:
        yield server


def test_slow_clients_are_cut_off_while_others_are_served(impatient_server: RunningServer) -> None:
    server = impatient_server
    sqs = server.sqs()
    polled = sqs.create_queue(QueueName="polled")["QueueUrl"]
    crowd = Crowd(server)
    with server.connect() as poller:
        poller.sendall(receive_bytes(polled, wait_s=20))
        before_bytes = crowd.memory_bytes()
        first_bytes = crowd.come_and_be_cut_off()
        assert first_bytes - before_bytes < MEMORY_GROWTH_BYTES_MAX
        assert crowd.come_and_be_cut_off() - first_bytes < MEMORY_LEAK_BYTES_MAX
        # It waited all the while, which is the server's doing and not its own.
        sqs.send_message(QueueUrl=polled, MessageBody="worth waiting for")
        assert b"worth waiting for" in read_message(poller)
    assert server.stop() == (0, "")
    assert "Traceback" not in server.errors.read_text()
