"""Requests as boto3 sends them, in bytes: every header of its own, and what differs from one request to the next."""

from __future__ import annotations

import copy
import itertools
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

REGION = "us-east-1"

_SIGNED = "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode"
_USER_AGENT = (
    "Boto3/1.43.0 md/Botocore#1.43.0 ua/2.1 os/linux#6.1 md/arch#x86_64 lang/python#3.11.7 md/pyimpl#CPython "
    "m/N,Z,b,D,e cfg/retry-mode#legacy Botocore/1.43.0"
)
_MARK = "\0"
"""Stands in a head where something new goes in every time."""


def write_head(operation: str, host: str) -> tuple[bytes, bytes, bytes]:
    """Write the headers of an operation; signature and invocation id go between the parts, length and body follow."""
    first, second, third = (
        "POST / HTTP/1.1\r\n"
        f"Host: {host}\r\n"
        "Accept-Encoding: identity\r\n"
        f"X-Amz-Target: AmazonSQS.{operation}\r\n"
        "Content-Type: application/x-amz-json-1.0\r\n"
        "x-amzn-query-mode: true\r\n"
        f"User-Agent: {_USER_AGENT}\r\n"
        "X-Amz-Date: 20260101T000000Z\r\n"
        f"Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/{REGION}/sqs/aws4_request, "
        f"SignedHeaders={_SIGNED}, Signature={_MARK}\r\n"
        f"amz-sdk-invocation-id: {_MARK}\r\n"
        "amz-sdk-request: attempt=1\r\n"
        "Content-Length: "
    ).split(_MARK)
    return first.encode(), second.encode(), third.encode()


class RequestWriter:
    """Writes the requests on one queue. No two have the same invocation id, nor the same signature.

    With `groups`, every send is for FIFO: it names one of so many message groups, and a deduplication id of its own;
    the messages of one batch share a group. The signatures are of the right form and of no meaning, so this is for
    servers that let everybody in.
    """

    def __init__(self, host: str, queue_url: str, bodies: Sequence[str], *, groups: int = 0) -> None:
        self._heads = {
            operation: write_head(operation, host)
            for operation in (
                "SendMessage",
                "SendMessageBatch",
                "ReceiveMessage",
                "DeleteMessage",
                "DeleteMessageBatch",
            )
        }
        self._queue = _opening(queue_url)
        self._groups = groups
        self._numbers = itertools.count()
        self._run = os.urandom(4).hex().encode()
        self._signature_head = os.urandom(26).hex().encode()
        self._bodies = [b'"MessageBody": %b' % json.dumps(body).encode() for body in bodies]
        self._batches: dict[int, list[bytes]] = {}

    def on(self, queue_url: str) -> RequestWriter:
        """Return a writer for another queue that counts on with this one, and keeps no bodies of its own."""
        other = copy.copy(self)
        other._queue = _opening(queue_url)  # noqa: SLF001 # It is one of us.
        return other

    def send(self, count: int) -> bytes:
        """Send one message, or a batch of more."""
        number = next(self._numbers)
        if self._groups:
            return self._send_in_order(number, count)
        if count == 1:
            return self._write("SendMessage", number, self._bodies[number % len(self._bodies)] + b"}")
        batches = self._batches.get(count)
        if batches is None:
            batches = self._batches[count] = [self._batch(first, count) for first in range(len(self._bodies))]
        return self._write("SendMessageBatch", number, batches[number % len(batches)])

    def receive(self, count: int, *, wait_seconds: int = 0) -> bytes:
        """Receive up to `count` messages, after waiting for the first of them so long."""
        waiting = b', "WaitTimeSeconds": %d' % wait_seconds if wait_seconds else b""
        return self._write("ReceiveMessage", next(self._numbers), b'"MaxNumberOfMessages": %d%b}' % (count, waiting))

    def delete(self, handles: Sequence[str], *, batch: bool) -> bytes:
        """Delete what was received: one message, or a batch."""
        number = next(self._numbers)
        if not batch:
            return self._write("DeleteMessage", number, b'"ReceiptHandle": %b}' % json.dumps(handles[0]).encode())
        entries = [{"Id": str(index), "ReceiptHandle": handle} for index, handle in enumerate(handles)]
        return self._write("DeleteMessageBatch", number, b'"Entries": %b}' % json.dumps(entries).encode())

    def _send_in_order(self, number: int, count: int) -> bytes:
        group = b'"MessageGroupId": "group-%d", "MessageDeduplicationId": "%b-%d' % (
            number % self._groups,
            self._run,
            number,
        )
        if count == 1:
            return self._write("SendMessage", number, b'%b, %b"}' % (self._body(number), group))
        entries = b", ".join(
            b'{"Id": "%d", %b, %b-%d"}' % (index, self._body(number + index), group, index) for index in range(count)
        )
        return self._write("SendMessageBatch", number, b'"Entries": [%b]}' % entries)

    def _batch(self, first: int, count: int) -> bytes:
        entries = b", ".join(b'{"Id": "%d", %b}' % (index, self._body(first + index)) for index in range(count))
        return b'"Entries": [%b]}' % entries

    def _body(self, number: int) -> bytes:
        return self._bodies[number % len(self._bodies)]

    def _write(self, operation: str, number: int, rest: bytes) -> bytes:
        """Write a request from what follows the queue in its body."""
        first, second, third = self._heads[operation]
        unique, queue = b"%012x" % number, self._queue
        invocation_id = b"%b-0000-4000-8000-%b" % (self._run, unique)
        length = b"%d\r\n\r\n" % (len(queue) + len(rest))
        return b"".join((first, self._signature_head, unique, second, invocation_id, third, length, queue, rest))


def _opening(queue_url: str) -> bytes:
    """Write what every body begins with."""
    return b'{"QueueUrl": %b, ' % json.dumps(queue_url).encode()
