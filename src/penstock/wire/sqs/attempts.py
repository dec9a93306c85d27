"""Attempt keys: what makes two requests attempts at the same thing, so that only one of them happens."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.domain.queue import QueueName
    from penstock.wire.http import Request

INVOCATION_ID_HEADER = "amz-sdk-invocation-id"
RETRY_HEADER = "amz-sdk-request"
RETRY_NUMBER_MAX = 10_000
_KEY_BYTES = 16
_TRY = re.compile(r"(?:^|[;\s])attempt=(\d{1,5})(?:$|[;\s])")


def request_attempt(caller: str, operation: str, request: Request, *, region: str = "") -> bytes | None:
    """Make the key of a request from an SDK that marks its retries, or None if it is not marked.

    A retry has the id of the first try, and says the very same thing at the same address. One id with anything else is
    another request. `region` is the one that the queue is looked for in, where that is not the server's own.
    """
    invocation_id = request.headers.get(INVOCATION_ID_HEADER)
    if not invocation_id:
        return None
    path, query, body = request.path, request.query, request.body
    # No header can hold a NUL, so it is clear where the body begins.
    said = f"{caller}\0{operation}\0{invocation_id}\0"
    if path == "/" and not region and not (body and query):
        # Most requests are such. Their keys stay as earlier versions made them: a retry may meet an updated server.
        said = f"request\0{said}{query}"
    else:
        said = f"request at\0{region}\0{said}{len(path)}\0{len(query)}\0{path}{query}"
    return sha256(said.encode() + body).digest()[:_KEY_BYTES]


def receive_attempt(caller: str, queue: QueueName, attempt_id: str) -> bytes:
    """Make the key of receives that a client marks itself, with a ReceiveRequestAttemptId, on a FIFO queue."""
    return sha256(f"receive\0{caller}\0{queue.arn}\0{attempt_id}".encode()).digest()[:_KEY_BYTES]


def retry_number(request: Request) -> int:
    """Return which retry of its call a request is; 0 for the first try, and from an SDK that does not count them."""
    said = request.headers.get(RETRY_HEADER)
    tried = None if said is None else _TRY.search(said)
    return 0 if tried is None else min(max(int(tried[1]) - 1, 0), RETRY_NUMBER_MAX)
