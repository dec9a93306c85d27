"""Answers that are cut on their way: botocore has to notice, or a client takes an empty result for the real one."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Self

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from botocore.parsers import ResponseParserError

from penstock.wire.http import Response
from tests.end_to_end.cutting_proxy import TIMEOUT_S, read_message
from tests.end_to_end.running import REGION, RunningServer
from tests.support.sqs_model import PROTOCOLS, read_response, write_request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

UNNOTICED = range(len(b"HTTP/1.1 200"), len(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked"))
"""Cuts that no server can do anything about: http.client takes what there is of a head for all of it."""
LAST_CHUNK = b"0\r\n\r\n"
BODY = "worth having in full"


class Replay:
    """A server on loopback that answers each request with the next of some bytes, and closes the connection."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(TIMEOUT_S)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # The listener was closed.
            with connection:
                connection.settimeout(TIMEOUT_S)
                if read_message(connection):
                    connection.sendall(self.answers.pop(0))


class Botocore:
    """The part of botocore that reads answers: its HTTP session, set up as by its clients, and its parser."""

    def __init__(self, protocol: str, operation: str, url: str) -> None:
        self._session = URLLib3Session(proxies={})
        self._protocol = protocol
        self._operation = operation
        self._url = url

    def read(self) -> dict[str, Any]:
        request = AWSPreparedRequest("POST", self._url, {"Content-Length": "0"}, b"", stream_output=False)
        answer = self._session.send(request)
        told = Response(status=answer.status_code, headers=list(answer.headers.items()), body=answer.content)
        return read_response(self._protocol, self._operation, told)


def parameters_of(server: RunningServer, queue_name: str) -> dict[str, dict[str, Any]]:
    """Make a queue with a message, and return what to ask for."""
    sqs = server.sqs()
    queue = sqs.create_queue(QueueName=queue_name)["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody=BODY)
    entries = [{"Id": str(number), "MessageBody": BODY} for number in range(2)]
    return {
        "SendMessage": {"QueueUrl": queue, "MessageBody": BODY},
        "SendMessageBatch": {"QueueUrl": queue, "Entries": entries},
        "ReceiveMessage": {"QueueUrl": queue},
        "GetQueueAttributes": {"QueueUrl": queue, "AttributeNames": ["VisibilityTimeout"]},
    }


def whole_answer(server: RunningServer, protocol: str, operation: str, parameters: dict[str, Any]) -> bytes:
    scope = f"AWS4-HMAC-SHA256 Credential=any/20260101/{REGION}/sqs/aws4_request, SignedHeaders=host, Signature=0"
    request = write_request(protocol, operation, parameters, authorization=scope)
    lines = [f"{name}: {value}" for name, value in request.headers.items() if name != "content-length"]
    head = "\r\n".join([f"POST / HTTP/1.1\r\nContent-Length: {len(request.body)}", *lines, "\r\n"])
    with server.connect() as connection:
        connection.sendall(head.encode() + request.body)
        return read_message(connection)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("operation", ["SendMessage", "SendMessageBatch", "ReceiveMessage", "GetQueueAttributes"])
def test_botocore_notices_an_answer_that_is_cut(
    passing_server: RunningServer, queue_name: str, protocol: str, operation: str
) -> None:
    parameters = parameters_of(passing_server, queue_name)[operation]
    answer = whole_answer(passing_server, protocol, operation, parameters)
    assert answer.endswith(LAST_CHUNK)
    with Replay() as replay:
        client = Botocore(protocol, operation, replay.url)
        replay.answers.append(answer)
        whole = client.read()
        accepted = []
        for cut in range(len(answer)):
            # A connection that was reset before its request was read has left its answer there.
            replay.answers[:] = [answer[:cut]]
            with contextlib.suppress(ConnectionClosedError, ResponseParserError):
                if client.read() != whole:
                    accepted.append(cut)
    # XML that is cut cannot be read, whatever carried it.
    assert set(accepted) <= (set(UNNOTICED) if protocol == "json" else set())


def test_boto3_asks_again_for_an_answer_that_was_cut(passing_server: RunningServer, queue_name: str) -> None:
    answer = whole_answer(
        passing_server, "json", "ReceiveMessage", parameters_of(passing_server, queue_name)["ReceiveMessage"]
    )
    with Replay() as replay:
        sqs = boto3.client(
            "sqs",
            endpoint_url=replay.url,
            region_name=REGION,
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=Config(proxies={}),
        )
        replay.answers += [answer[: -len(LAST_CHUNK) - 10], answer]
        [message] = sqs.receive_message(QueueUrl=f"{replay.url}/{queue_name}")["Messages"]
        assert message["Body"] == BODY
        assert replay.answers == []


def test_a_client_of_http_1_0_gets_no_chunks(passing_server: RunningServer, queue_name: str) -> None:
    passing_server.sqs().create_queue(QueueName=queue_name)
    with passing_server.connect() as connection:
        connection.sendall(b"GET /?Action=ListQueues HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(body))
