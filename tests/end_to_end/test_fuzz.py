"""Requests that make no sense, by name, against a real server process: each is refused, and the server goes on."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlencode

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest

from tests.end_to_end.cutting_proxy import read_message
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer, many_files, read_all

IDLE_CONNECTIONS = 3_000
MEMORY_GROWTH_BYTES_MAX = 64 * 1024 * 1024
JSON = "application/x-amz-json-1.0"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def fuzzed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that, after everything, has reported no bug, has not grown, and works."""
    with RunningServer(tmp_path_factory.mktemp("fuzzed"), "--port", "0", "--store", "memory:") as server:
        sqs = server.sqs()
        url = sqs.create_queue(QueueName="fuzzed")["QueueUrl"]
        process = psutil.Process(server.process.pid)
        before_bytes = process.memory_info().rss
        yield server
        assert process.memory_info().rss - before_bytes < MEMORY_GROWTH_BYTES_MAX
        sent = sqs.send_message(QueueUrl=url, MessageBody="still here")
        assert sent["MessageId"]
        assert server.stop() == (0, "")
        log = server.errors.read_text()
        assert "Traceback" not in log
        assert "bug" not in log


def exchange(server: RunningServer, sent: bytes) -> bytes:
    """Send bytes and no more, and return all that comes back until the server closes the connection."""
    with server.connect() as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(65_536):
                answer += part
        except ConnectionError:
            answer = b""  # It was cut off in the middle, which is an answer too.
    return answer


def status_of(server: RunningServer, headers: dict[str, str], body: bytes, target: str = "/") -> int:
    """Send a well-framed request, and return the status of its answer, which every such request gets."""
    request = urllib.request.Request(server.url + target, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=STOP_TIMEOUT_S) as answer:
            text, status = answer.read(), answer.status
    except urllib.error.HTTPError as error:
        text, status = error.read(), error.code
    assert b"Traceback" not in text
    assert status < 500, text
    return int(status)


SEND = {"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.SendMessage"}
DEEP = 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b'{"QueueUrl":"fuzzed","MessageBody":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"QueueUrl":"fuzzed","MessageBody":"\xff\xfe"}',
        b'{"QueueUrl":"fuzzed","MessageBody":"\\ud800"}',
        b'{"QueueUrl":"fuzzed","MessageBody":"x","DelaySeconds":1e400}',
        b'{"QueueUrl":"fuzzed","MessageBody":"x","DelaySeconds":99999999999999999999}',
        b'{"QueueUrl":"fuzzed","MessageBody":"x","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"*"}}}',
        b'{"QueueUrl":"fuzzed","MessageBody":"x","MessageAttributes":{"\\ud800":{"DataType":"String"}}}',
        b'{"QueueUrl":"\\ud800","MessageBody":"x"}',
        b"null",
        b"\x00" * 1_000,
    ],
    ids=lambda body: repr(body[:60] + b".." + body[-12:]),
)
def test_a_body_that_makes_no_sense_is_refused(fuzzed_server: RunningServer, body: bytes) -> None:
    assert status_of(fuzzed_server, SEND, body) == 400


@pytest.mark.parametrize(
    "body",
    [
        b"Action=SendMessage&QueueUrl=fuzzed&MessageBody=%ff",
        b"Action=SendMessage&QueueUrl=fuzzed&MessageBody=\xff",
        b"Action=SendMessage&QueueUrl=fuzzed&MessageBody=%00",
        b"Action=CreateQueue&QueueName=" + b"x" * 1_000_000,
        b"Action=TagQueue&QueueUrl=fuzzed&Tag" + b".1" * DEEP + b"=1",
        b"&".join(b"Tag.%d.Key=%d" % (number, number) for number in range(50_000)) + b"&Action=TagQueue",
        b"Action=SendMessage&QueueUrl=fuzzed&MessageBody=x&MessageAttribute." + b"9" * 10_000 + b".Name=x",
        urlencode(
            {
                "Action": "SendMessage",
                "QueueUrl": "fuzzed",
                "MessageBody": "x",
                "MessageAttribute.1.Name": "a",
                "MessageAttribute.1.Value.DataType": "Binary",
                "MessageAttribute.1.Value.BinaryValue": "*",
            }
        ).encode(),
        b"Action=" + b"&" * 100_000,
    ],
    ids=lambda body: repr(body[:60] + b".." + body[-12:]),
)
def test_a_form_that_makes_no_sense_is_refused(fuzzed_server: RunningServer, body: bytes) -> None:
    assert 400 <= status_of(fuzzed_server, {"Content-Type": FORM}, body) < 500


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/json", "multipart/form-data; boundary=x", "", "\xff", JSON]
)
def test_no_content_type_makes_the_server_fail(fuzzed_server: RunningServer, kind: str) -> None:
    status_of(fuzzed_server, {"Content-Type": kind}, b'{"QueueUrl":"fuzzed"}')
    status_of(fuzzed_server, {"Content-Type": kind}, b"Action=ListQueues")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\n" + b"X-Many: y\r\n" * 10_000, b"431"),
        (b"POST / HTTP/1.1\r\nX-Long: " + b"y" * 100_000, b"431"),
        (b"POST /" + b"y" * 100_000, b"431"),
    ],
    ids=["body", "many headers", "long header", "long target"],
)
def test_a_request_that_is_too_large_is_refused_before_it_is_whole(
    fuzzed_server: RunningServer, head: bytes, status: bytes
) -> None:
    with fuzzed_server.connect() as connection:
        connection.sendall(head)
        assert read_message(connection).split()[1] == status


@pytest.mark.parametrize("first", [b"OPTIONS * HTTP/1.1\r\n\r\n", b"GET http://[::1 HTTP/1.1\r\n\r\n"])
def test_what_is_refused_twice_is_answered_once(fuzzed_server: RunningServer, first: bytes) -> None:
    """The target is no address, and what follows in the same breath is no request."""
    with fuzzed_server.connect() as connection:
        connection.sendall(first + b"\x00 nonsense")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_body_without_an_end_is_refused(fuzzed_server: RunningServer) -> None:
    """Five megabytes in chunks that never say how many there will be."""
    with fuzzed_server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(50):
            connection.sendall(b"186a0\r\n" + b"x" * 100_000 + b"\r\n")
        assert read_message(connection).split()[1] == b"413"


@pytest.mark.parametrize("length", range(0, 260, 13))
def test_a_request_that_is_cut_short_costs_nothing(fuzzed_server: RunningServer, length: int) -> None:
    body = b'{"QueueUrl":"fuzzed","MessageBody":"never sent, because its request was not sent to its end"}'
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
    whole = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert exchange(fuzzed_server, whole[: min(length, len(whole) - 1)]) == b""


def test_idle_and_half_sent_connections_leave_room_for_others(fuzzed_server: RunningServer) -> None:
    with many_files(2 * IDLE_CONNECTIONS), contextlib.ExitStack() as stack:
        for number in range(IDLE_CONNECTIONS):
            connection = stack.enter_context(fuzzed_server.connect())
            connection.sendall([b"", b"POST / HT", b"POST / HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\n"][number % 4])
        assert fuzzed_server.get("/healthz") == {"status": "ok"}
        assert "QueueUrls" in fuzzed_server.sqs().list_queues()
