"""The lab's proxy: what passes, what is cut, and that the server has done it by then."""

from __future__ import annotations

import json
import socket

import pytest
from botocore.exceptions import BotoCoreError

from penstock.lab.cutting_proxy import CuttingProxy, ProxyBroken, body_of, read_message
from penstock.lab.endpoints import client
from penstock.testing import RunningServer


def test_an_answer_is_cut_after_the_commit(server: RunningServer) -> None:
    with CuttingProxy(server.url) as proxy:
        sqs = client("sqs", endpoint=server.url, region="us-west-1", proxy=proxy.url, tries=1)
        url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        assert proxy.taken() is None
        proxy.cut_next(1)
        with pytest.raises(BotoCoreError):
            sqs.send_message(QueueUrl=url, MessageBody="a")
        answer = proxy.taken()
        assert answer is not None
        [stored] = sqs.receive_message(QueueUrl=url)["Messages"]
        assert json.loads(answer)["MessageId"] == stored["MessageId"]
        assert proxy.taken() is None
        sqs.close()


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_message_is_read_whole_however_it_arrives(framing: str) -> None:
    head = b"Content-Length: 11\r\n\r\n" if framing == "length" else b"transfer-encoding: Chunked\r\n\r\n"
    body = b"hello world" if framing == "length" else b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    message = b"HTTP/1.1 200 OK\r\n" + head + body
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for place in range(len(message)):
            ours.send(message[place : place + 1])
        assert read_message(theirs) == message
    assert body_of(message) == b"hello world"


def test_what_is_no_message_ends_the_proxy_with_its_reason(server: RunningServer) -> None:
    proxy = CuttingProxy(server.url).__enter__()
    port = int(proxy.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n")
        assert connection.recv(1) == b""
    with pytest.raises((ProxyBroken, ValueError)):
        proxy.close()
