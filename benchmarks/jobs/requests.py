"""Requests to the job API in bytes, and what is read of their answers."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import msgspec

from benchmarks.errors import WorkFailed
from benchmarks.workload import make_bodies

if TYPE_CHECKING:
    from collections.abc import Sequence

_TASK = "measured"
_REFUSED = re.compile(rb'"status": ?[45]')
_SHOWN_BYTES = 300


class Offer(msgspec.Struct):
    """What a worker needs to know of an offer."""

    token: str
    payload: str


class _Offers(msgspec.Struct):
    offers: list[Offer]


_decode_offers = msgspec.json.Decoder(_Offers).decode
_encode = msgspec.json.Encoder().encode


def offers_of(answer: bytes) -> list[Offer]:
    """Read the offers in an answer, head and body."""
    return _decode_offers(answer[answer.index(b"\r\n\r\n") + 4 :]).offers


def refuse_failures(answer: bytes) -> None:
    """Raise `WorkFailed` if an entry of a batch failed."""
    if _REFUSED.search(answer):
        raise WorkFailed(f"an entry of a batch was refused: {answer[:_SHOWN_BYTES]!r}")


class JobRequests:
    """Writes the requests on one queue."""

    def __init__(self, port: int, queue: str, payload_bytes: int, tenant: str = "") -> None:
        self._host = f"127.0.0.1:{port}".encode()
        self._queue = queue
        self._tenant = tenant
        self._payloads = itertools.cycle(make_bodies(payload_bytes))
        self._dequeues: dict[int, bytes] = {}

    def enqueue(self, count: int) -> bytes:
        """Enqueue one job, or a batch of more."""
        jobs = [
            {"queue": self._queue, "task": _TASK, "payload": payload, "tenant": self._tenant}
            for payload in itertools.islice(self._payloads, count)
        ]
        return self._write(b"/v1/jobs", jobs[0]) if count == 1 else self._write(b"/v1/jobs/batch", {"jobs": jobs})

    def dequeue(self, count: int) -> bytes:
        """Ask for up to so many jobs, without waiting."""
        asked = self._dequeues.get(count)
        if asked is None:
            wanted = {"queues": [self._queue], "worker": "bench", "count": count, "wait_ms": 0}
            asked = self._dequeues[count] = self._write(b"/v1/dequeue", wanted)
        return asked

    def stream(self, credit: int) -> bytes:
        """Open a stream."""
        wanted = {"queues": [self._queue], "worker": "bench", "count": credit}
        return self._write(b"/v1/dequeue", wanted, b"Accept: application/x-ndjson\r\n")

    def accept(self, tokens: Sequence[str], *, batch: bool) -> bytes:
        """Accept what was offered: one job, or a batch."""
        if not batch:
            return self._write(b"/v1/leases/%b/accept" % tokens[0].encode(), {})
        return self._write(b"/v1/leases", {"reports": [{"do": "accept", "token": token} for token in tokens]})

    def complete(self, results: Sequence[tuple[str, object]], *, batch: bool) -> bytes:
        """Complete what was accepted: one job, or a batch."""
        if not batch:
            token, result = results[0]
            return self._write(b"/v1/leases/%b/complete" % token.encode(), {"result": result})
        reports = [{"do": "complete", "token": token, "result": result} for token, result in results]
        return self._write(b"/v1/leases", {"reports": reports})

    def _write(self, path: bytes, value: object, headers: bytes = b"") -> bytes:
        body = _encode(value)
        head = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
        return head % (path, self._host, headers, len(body)) + body
