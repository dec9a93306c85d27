"""Large requests on many connections at once: memory stays bounded, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import selectors
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest

from tests.end_to_end.cutting_proxy import TIMEOUT_S
from tests.end_to_end.running import REGION, RunningServer, many_files
from tests.support.campaigns import campaign, trials

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONNECTIONS = trials(1_000, share=16)
BODY_BYTES = 4_000_000
BUDGET_MIB = 64
MIB = 1024 * 1024
SLACK_BYTES = 32 * MIB
"""What the connections themselves and the other clients may take."""
KEY, SECRET, TOKEN = "AKIAEXAMPLE", "a very secret secret", "a-very-secret-token"
FILE = f"""
[[keys]]
access_key_id = "{KEY}"
secret_access_key = "{SECRET}"
account = "000000000000"
policy = '{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}}]}}'

[[tokens]]
name = "app"
token = "{TOKEN}"
scopes = ["enqueue"]
"""
SQS = "Host: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\nContent-Type: application/x-amz-json-1.0\r\n"
SIGNED = "host;x-amz-date;x-amz-target"
UNKNOWN = f"AWS4-HMAC-SHA256 Credential=NOBODY/20260101/{REGION}/sqs/aws4_request, SignedHeaders={SIGNED}, Signature=0"
HEADS = {
    "unsigned": f"POST / HTTP/1.1\r\n{SQS}",
    "unknown key": f"POST / HTTP/1.1\r\n{SQS}X-Amz-Date: 20260101T000000Z\r\nAuthorization: {UNKNOWN}\r\n",
    "no token": "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n",
    "unknown token": "POST /v1/jobs/batch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobody\r\n",
    "escaped path": "POST /v1%2Fjobs/batch HTTP/1.1\r\nHost: localhost\r\n",
}


class LargeRequest:
    """A connection that sends a large request, but for its last byte, and reads what comes."""

    def __init__(self, server: RunningServer, head: str, body: bytes) -> None:
        self.connection = server.connect()
        self.connection.setblocking(False)
        self.connection.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        self._unsent = memoryview(body)[:-1]
        self._last = body[-1:]
        self.answer = b""
        self.ended = False

    @property
    def status(self) -> int:
        """The status of the answer; 0 before there is one."""
        return int(self.answer[9:12]) if len(self.answer) >= 12 else 0

    @property
    def settled(self) -> bool:
        """Whether the server has taken all that is sent, or has said what it thinks of it."""
        return self.ended or not self._unsent

    def go_on(self) -> None:
        try:
            if self._unsent:
                self._unsent = self._unsent[self.connection.send(self._unsent[:262_144]) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = memoryview(b"")
        try:
            part = self.connection.recv(65_536)
            self.answer += part
            self.ended = self.ended or not part
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True

    def finish(self) -> int:
        """Send the last byte, and return the status of the answer."""
        self.connection.settimeout(TIMEOUT_S)
        self.connection.sendall(self._last)
        while b"\r\n\r\n" not in self.answer:
            self.answer += self.connection.recv(65_536)
        return self.status


class Flood:
    """Large requests, all at once. `meanwhile` is called again and again until each is settled."""

    def __init__(self, server: RunningServer, heads: list[str], body: bytes) -> None:
        self._process = psutil.Process(server.process.pid)
        self.before_bytes = self.most_bytes = self._memory_bytes()
        self.requests = [LargeRequest(server, heads[number % len(heads)], body) for number in range(CONNECTIONS)]

    @property
    def grown_bytes(self) -> int:
        """How much memory the server took at most, beyond what it had."""
        return self.most_bytes - self.before_bytes

    def run(self, meanwhile: Callable[[], None]) -> None:
        with selectors.DefaultSelector() as selector:
            for request in self.requests:
                selector.register(request.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, request)
            while selector.get_map():
                for key, _ in selector.select(TIMEOUT_S):
                    key.data.go_on()
                    if key.data.settled:
                        selector.unregister(key.fileobj)
                meanwhile()
                self.most_bytes = max(self.most_bytes, self._memory_bytes())
        # The server has seen all heads before it served the other client once more, so all refusals are there.
        meanwhile()
        for request in self.requests:
            request.go_on()

    def statuses(self) -> Counter[int]:
        return Counter(request.status for request in self.requests)

    def close(self) -> None:
        for request in self.requests:
            request.connection.close()

    def _memory_bytes(self) -> int:
        return int(self._process.memory_info().rss)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Start servers with little memory for requests."""
    with many_files(2 * CONNECTIONS + 200), contextlib.ExitStack() as stack:

        def run(*arguments: str) -> RunningServer:
            own = ("--port", "0", "--store", "memory:", "--request-memory", str(BUDGET_MIB))
            return stack.enter_context(RunningServer(tmp_path, *own, *arguments))

        yield run


def sending(queue_url: str, sqs: object) -> Callable[[], None]:
    """Return a client's work: a message's whole life."""

    def work() -> None:
        sent = sqs.send_message(QueueUrl=queue_url, MessageBody="small")  # type: ignore[attr-defined]
        [message] = sqs.receive_message(QueueUrl=queue_url)["Messages"]  # type: ignore[attr-defined]
        assert message["MessageId"] == sent["MessageId"]
        sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])  # type: ignore[attr-defined]

    return work


def send_body(queue_url: str) -> bytes:
    """Write a SendMessage that is as long as it is only for the spaces in it."""
    shape = f'{{"QueueUrl": "{queue_url}", "MessageBody": "large"'
    return shape.encode() + b" " * (BODY_BYTES - len(shape) - 1) + b"}"


@campaign
def test_large_requests_take_no_more_memory_than_they_may(
    start: Callable[..., RunningServer], record_property: Callable[[str, object], None]
) -> None:
    server = start()
    sqs = server.sqs()
    small, large = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("small", "large"))
    flood = Flood(server, [HEADS["unsigned"]], send_body(urlsplit(large).path))
    try:
        flood.run(sending(small, sqs))
        refused = [request for request in flood.requests if request.status]
        admitted = [request for request in flood.requests if not request.status]
        assert {request.status for request in refused} == {503}
        assert all(b"retry-after: 1\r\n" in request.answer for request in refused)
        assert 1 <= len(admitted) <= BUDGET_MIB * MIB // (BODY_BYTES - 32 * 1024)
        assert flood.grown_bytes < 2 * BUDGET_MIB * MIB + SLACK_BYTES
        # Whoever has been let in is not kept from finishing.
        assert {request.finish() for request in admitted} == {200}
    finally:
        flood.close()
    sqs.send_message(QueueUrl=large, MessageBody="x" * 1_000_000)
    record_property(
        "evidence",
        f"{CONNECTIONS} requests of {BODY_BYTES} bytes at once, {BUDGET_MIB} MiB allowed: {len(admitted)} admitted, "
        f"{len(refused)} refused with 503, the process grew by {flood.grown_bytes // MIB} MiB",
    )


@campaign
def test_who_is_not_known_takes_next_to_no_memory(
    start: Callable[..., RunningServer], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "penstock.toml").write_text(FILE)
    server = start("--config", "penstock.toml")
    sqs = server.sqs(aws_access_key_id=KEY, aws_secret_access_key=SECRET)
    queue = sqs.create_queue(QueueName="small")["QueueUrl"]
    flood = Flood(server, list(HEADS.values()), send_body(queue))
    try:
        flood.run(sending(queue, sqs))
        statuses = {kind: Counter(r.status for r in flood.requests[n :: len(HEADS)]) for n, kind in enumerate(HEADS)}
    finally:
        flood.close()
    assert statuses["unknown key"].keys() == {403}
    for kind in ("no token", "unknown token", "escaped path"):
        assert statuses[kind].keys() == {401}
    # Some queue might be open to everybody, so what is not signed is read, within a quarter of the memory.
    assert statuses["unsigned"].keys() <= {0, 503}
    assert statuses["unsigned"][0] <= BUDGET_MIB * MIB // 4 // (BODY_BYTES - 32 * 1024)
    assert flood.grown_bytes < BUDGET_MIB * MIB // 2 + SLACK_BYTES
    record_property(
        "evidence",
        f"{CONNECTIONS} requests of {BODY_BYTES} bytes from nobody known: the process grew by "
        f"{flood.grown_bytes // MIB} MiB, {dict(flood.statuses())} (0: unsigned and waited for)",
    )
