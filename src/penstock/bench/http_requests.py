"""Requests as boto3 sends them, in bytes: every header of its own, and what differs from one request to the next."""

from __future__ import annotations

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

    The signatures are of the right form and of no meaning, so this is for servers that let everybody in.
    """

    def __init__(self, host: str, queue_url: str, bodies: Sequence[str]) -> None:
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
        self._queue_url = queue_url
        self._numbers = itertools.count()
        self._run = os.urandom(4).hex().encode()
        self._signature_head = os.urandom(26).hex().encode()
        self._singles = [_sized({"QueueUrl": queue_url, "MessageBody": body}) for body in bodies]
        self._bodies = bodies
        self._batches: dict[int, list[bytes]] = {}
        self._receives: dict[int, bytes] = {}

    def send(self, count: int) -> bytes:
        """Send one message, or a batch of more."""
        number = next(self._numbers)
        if count == 1:
            return self._write("SendMessage", number, self._singles[number % len(self._singles)])
        batches = self._batches.get(count)
        if batches is None:
            batches = self._batches[count] = [self._batch(first, count) for first in range(len(self._bodies))]
        return self._write("SendMessageBatch", number, batches[number % len(batches)])

    def receive(self, count: int) -> bytes:
        """Receive up to `count` messages, without waiting."""
        asked = self._receives.get(count)
        if asked is None:
            asked = self._receives[count] = _sized({"QueueUrl": self._queue_url, "MaxNumberOfMessages": count})
        return self._write("ReceiveMessage", next(self._numbers), asked)

    def delete(self, handles: Sequence[str], *, batch: bool) -> bytes:
        """Delete what was received: one message, or a batch."""
        number = next(self._numbers)
        if not batch:
            asked = _sized({"QueueUrl": self._queue_url, "ReceiptHandle": handles[0]})
            return self._write("DeleteMessage", number, asked)
        entries = [{"Id": str(index), "ReceiptHandle": handle} for index, handle in enumerate(handles)]
        return self._write("DeleteMessageBatch", number, _sized({"QueueUrl": self._queue_url, "Entries": entries}))

    def _batch(self, first: int, count: int) -> bytes:
        bodies = itertools.islice(itertools.cycle(self._bodies), first, first + count)
        entries = [{"Id": str(index), "MessageBody": body} for index, body in enumerate(bodies)]
        return _sized({"QueueUrl": self._queue_url, "Entries": entries})

    def _write(self, operation: str, number: int, sized: bytes) -> bytes:
        first, second, third = self._heads[operation]
        unique = b"%012x" % number
        invocation_id = b"%b-0000-4000-8000-%b" % (self._run, unique)
        return b"".join((first, self._signature_head, unique, second, invocation_id, third, sized))


def _sized(value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"%d\r\n\r\n%b" % (len(body), body)
