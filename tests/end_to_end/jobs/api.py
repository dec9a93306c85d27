"""The job API as tests call it, and streams as bytes on a bare connection."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.end_to_end.running import RunningServer

HOUR_MS = 3_600_000
WAIT_MS = 20_000


class Api:
    """A client of the API with one queue in mind."""

    def __init__(self, client: httpx.Client, queue: str) -> None:
        self.client = client
        self.queue = queue

    def make_queue(self, **settings: Any) -> None:
        """Make the queue; unless told otherwise an offer or a lease never lapses while a test runs."""
        given = {"offer_ms": HOUR_MS, "lease_ms": HOUR_MS, **settings}
        answer = self.client.put(f"/v1/queues/{self.queue}", json={"settings": given})
        assert answer.status_code == 201, answer.text

    def change_queue(self, **settings: Any) -> None:
        """Give the queue other settings; what is offered or leased already keeps its time."""
        answer = self.client.patch(f"/v1/queues/{self.queue}", json={"settings": settings})
        assert answer.status_code == 200, answer.text

    def post(self, path: str, body: object = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, json={} if body is None else body, headers=named)

    def enqueue(self, payload: object = None, **fields: Any) -> str:
        answer = self.post("/v1/jobs", {"queue": self.queue, "task": "greet", "payload": payload, **fields})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def dequeue(self, count: int = 1, wait_ms: int = WAIT_MS) -> list[dict[str, Any]]:
        """Be offered jobs; with none there, wait for one."""
        answer = self.post("/v1/dequeue", {"queues": [self.queue], "count": count, "wait_ms": wait_ms, "worker": "w"})
        assert answer.status_code == 200, answer.text
        return list(answer.json()["offers"])

    def dequeue_all(self, count: int) -> list[dict[str, Any]]:
        """Be offered exactly so many jobs; what is given back during a poll is found."""
        offers: list[dict[str, Any]] = []
        while len(offers) < count:
            found = self.dequeue(count - len(offers))
            assert found, "they did not come back"
            offers += found
        return offers

    def report(self, token: str, verb: str, body: object = None) -> httpx.Response:
        return self.post(f"/v1/leases/{token}/{verb}", body)

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.client.get(f"/v1/jobs/{job_id}").json())

    def counts(self) -> dict[str, int]:
        """Count the queue's jobs, in those states that there are any in."""
        counts = self.client.get(f"/v1/queues/{self.queue}").json()["counts"]
        return {state: number for state, number in counts.items() if number}


def stream_bytes(queue: str, credit: int, **fields: object) -> bytes:
    """Write the request for a stream."""
    body = json.dumps({"queues": [queue], "count": credit, "worker": "streaming", **fields}).encode()
    head = "POST /v1/dequeue HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def poll_bytes(queue: str, count: int, wait_ms: int = WAIT_MS, worker: str = "") -> bytes:
    """Write the request for a long poll."""
    body = json.dumps({"queues": [queue], "count": count, "wait_ms": wait_ms, "worker": worker}).encode()
    return b"POST /v1/dequeue HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Stream:
    """A stream on a bare connection, which a test can break."""

    def __init__(self, server: RunningServer, queue: str, credit: int, **fields: object) -> None:
        self.connection = server.connect()
        self.connection.sendall(stream_bytes(queue, credit, **fields))
        self._file = self.connection.makefile("rb")
        status = self._file.readline()
        assert b"200" in status, status
        self.name: str = self.line()["stream"]

    def line(self) -> dict[str, Any]:
        """Read the next line of JSON, whatever stands between."""
        while line := self._file.readline():
            if line.startswith(b"{"):
                return dict(json.loads(line))
        raise AssertionError("the stream ended")

    def offers(self, count: int) -> list[dict[str, Any]]:
        """Read so many offers."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            line = self.line()
            if "offer" in line:
                found.append(line["offer"])
        return found

    def at_end(self) -> bool:
        """Read what the server still has to say, until it ends the answer; tell whether it did so in good order."""
        return self._file.readlines()[-2:] == [b"0\r\n", b"\r\n"]

    def break_by(self, leave: Leave) -> None:
        self._file.close()
        leave(self.connection)


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


Leave = Callable[[socket.socket], None]
ways_to_leave = pytest.mark.parametrize("leave", [close, reset])
