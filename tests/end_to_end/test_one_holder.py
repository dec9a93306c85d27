"""Receives that are retried while their first try is still under way: a message has one holder at a time.

Each campaign has the same end. Whoever was answered last holds what it was given, for ten minutes. A third consumer
gets none of that, the holder's deletes are accepted, and what was deleted stays deleted. That nobody holds a message
for a while is no failure: its first receiver is gone, and perhaps nobody has noticed.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError

from penstock.domain.ids import OrderedIds
from tests.end_to_end.running import CLIENT_TIMEOUT_S, REGION, STOP_TIMEOUT_S, RunningServer
from tests.support.campaigns import campaign, trials

HELD_S = 600
TOGETHER = 50
"""How many trials share one look of the third consumer, which takes a second."""

CLIENTS = 10
READ_TIMEOUT_S = 0.25

LARGE = "x" * 1_000_000
"""Ten of them are more than the buffers of both ends hold."""

Messages = list[dict[str, Any]]
Record = Callable[[str, object], None]

_IDS = OrderedIds()

on_both_kinds = pytest.mark.parametrize("suffix", ["", ".fifo"], ids=["standard", "fifo"])


class Board:
    """A queue, and who holds what of it by the answers that they got."""

    def __init__(self, server: RunningServer, url: str) -> None:
        self.server = server
        self.url = url
        self.sqs = server.sqs()
        self.fifo = url.endswith(".fifo")
        self.trials = 0
        self.twice: set[str] = set()
        """Messages that two had at the same time."""
        self.undone: set[str] = set()
        """Messages that came back after their delete."""
        self.refused: list[str] = []
        """What deletes by their holders were refused with."""
        self.nobodys = 0
        """How many messages nobody was holding when they were looked for."""

    def fill(self, bodies: list[str], group: str | None = None) -> set[str]:
        """Send messages, on FIFO each in a group of its own unless one is given; return their ids."""
        sent: set[str] = set()
        for body in bodies:
            of_group = {"MessageGroupId": group or _IDS.new_id(), "MessageDeduplicationId": _IDS.new_id()}
            answer = self.sqs.send_message(QueueUrl=self.url, MessageBody=body, **(of_group if self.fifo else {}))
            sent.add(answer["MessageId"])
        return sent

    def settle(self, sent: set[str], answers: list[Messages]) -> None:
        """Let the third consumer look, the holders delete what they hold, and the third one look again."""
        self.trials += len(answers)
        holders: dict[str, str] = {}
        for message in (message for messages in answers for message in messages):
            if message["MessageId"] in holders:
                self.twice.add(message["MessageId"])
            holders[message["MessageId"]] = message["ReceiptHandle"]
        others = self.look()
        wrongly = {message_id: handle for message_id, handle in others.items() if message_id in holders}
        self.twice |= wrongly.keys()
        self.nobodys += len(sent - holders.keys() - others.keys())
        self.delete(handle for message_id, handle in others.items() if message_id not in holders)
        self.delete(holders.values())
        for handle in wrongly.values():
            # So that it is found, if the delete of its holder came to nothing.
            with contextlib.suppress(self.sqs.exceptions.ClientError):
                self.sqs.change_message_visibility(QueueUrl=self.url, ReceiptHandle=handle, VisibilityTimeout=0)
        left = self.look()
        self.undone |= left.keys() & holders.keys()
        self.delete(left.values())

    def look(self) -> dict[str, str]:
        """Receive whatever comes until nothing does for a second; return handles by ids."""
        found: dict[str, str] = {}
        while messages := self.sqs.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=10, WaitTimeSeconds=1, VisibilityTimeout=HELD_S
        ).get("Messages"):
            found |= {message["MessageId"]: message["ReceiptHandle"] for message in messages}
        return found

    def delete(self, handles: Iterable[str]) -> None:
        """Delete as whoever was given these handles."""
        for handle in handles:
            try:
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=handle)
            except self.sqs.exceptions.ClientError as error:
                self.refused.append(str(error))

    def judge(self, record: Record) -> None:
        """Say what was found, and fail if anything had two holders."""
        record(
            "evidence",
            f"{self.trials} trials: {len(self.twice)} messages with two holders, {len(self.refused)} deletes refused, "
            f"{len(self.undone)} deletes undone; {self.nobodys} messages held by nobody",
        )
        assert not self.twice
        assert not self.refused
        assert not self.undone


@pytest.fixture
def own_server(store_url: str, tmp_path: Path) -> Iterator[RunningServer]:
    """A server that a test may stop for a while; it goes on before it is ended."""
    with RunningServer(tmp_path, "--port", "0", "--store", store_url) as running:
        yield running
        running.process.send_signal(signal.SIGCONT)


def make_board(server: RunningServer, name: str, suffix: str) -> Board:
    attributes = {"VisibilityTimeout": str(HELD_S)} | ({"FifoQueue": "true"} if suffix else {})
    url = server.sqs().create_queue(QueueName=f"{name[: 80 - len(suffix)]}{suffix}", Attributes=attributes)["QueueUrl"]
    return Board(server, str(url))


class Receive:
    """One receive, which may be tried again: every try says the same thing under the same id."""

    def __init__(self, board: Board, count: int = 1) -> None:
        self._server = board.server
        asked: dict[str, Any] = {
            "QueueUrl": board.url,
            "MaxNumberOfMessages": count,
            "VisibilityTimeout": HELD_S,
            "WaitTimeSeconds": 0,
        }
        if board.fifo:
            asked["ReceiveRequestAttemptId"] = _IDS.new_id()
        self._body = json.dumps(asked).encode()
        scope = f"Credential=any/20260101/{REGION}/sqs/aws4_request, SignedHeaders=host, Signature=0"
        self._headers = {
            "X-Amz-Target": "AmazonSQS.ReceiveMessage",
            "Content-Type": "application/x-amz-json-1.0",
            "amz-sdk-invocation-id": _IDS.new_id(),
            "Authorization": f"AWS4-HMAC-SHA256 {scope}",
        }

    def to_bytes(self) -> bytes:
        """Write it as it goes over a bare connection."""
        headers = self._headers | {"Host": "localhost", "Content-Length": str(len(self._body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST / HTTP/1.1\r\n{lines}\r\n".encode() + self._body

    def retry(self) -> Messages:
        """Try it on a new connection, and take the answer."""
        connection = http.client.HTTPConnection(urlsplit(self._server.url).netloc, timeout=STOP_TIMEOUT_S)
        connection.request("POST", "/", self._body, self._headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == 200, body
        messages: Messages = json.loads(body).get("Messages", [])
        return messages


class Tries:
    """Counts how often clients of boto3 have sent their present request."""

    def __init__(self, clients: list[Any]) -> None:
        self._changed = threading.Condition()
        self._made = [0] * len(clients)
        for place, sqs in enumerate(clients):
            sqs.meta.events.register("before-send.sqs.ReceiveMessage", functools.partial(self._count, place))

    def begin(self) -> None:
        """Count from nothing."""
        with self._changed:
            self._made = [0] * len(self._made)

    def wait_for(self, number: int, receives: list[Future[Any]]) -> None:
        """Wait until half of those clients that have no answer send this try, or all were answered sooner."""

        def waited() -> bool:
            tries = [made for made, each in zip(self._made, receives, strict=True) if not each.done()]
            return 2 * sum(made >= number for made in tries) >= len(tries)

        for each in receives:
            each.add_done_callback(self._look)
        with self._changed:
            assert self._changed.wait_for(waited, CLIENT_TIMEOUT_S)

    def _count(self, place: int, **_: object) -> None:
        with self._changed:
            self._made[place] += 1
            self._changed.notify_all()

    def _look(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@campaign
@pytest.mark.slow
@on_both_kinds
@pytest.mark.timeout(1_800)
def test_a_retry_right_after_a_reset_is_the_only_holder(
    shared_server: RunningServer, queue_name: str, suffix: str, record_property: Record
) -> None:
    board = make_board(shared_server, queue_name, suffix)
    left = trials(1_000)
    delays = random.Random(11)
    while left:
        number = min(left, TOGETHER)
        left -= number
        sent = board.fill([f"{number}" for number in range(number)])
        answers: list[Messages] = []
        for _ in range(number):
            receive = Receive(board)
            first = shared_server.connect()
            first.sendall(receive.to_bytes())
            reset(first)
            time.sleep(delays.choice([0, delays.uniform(0, 0.005)]))
            answers.append(receive.retry())
        board.settle(sent, answers)
    board.judge(record_property)


@campaign
@pytest.mark.slow
@on_both_kinds
@pytest.mark.timeout(1_800)
def test_the_last_try_of_stock_boto3_at_a_server_that_stalls_is_the_only_holder(
    own_server: RunningServer, queue_name: str, suffix: str, record_property: Record
) -> None:
    board = make_board(own_server, queue_name, suffix)
    config = Config(read_timeout=READ_TIMEOUT_S, connect_timeout=STOP_TIMEOUT_S, max_pool_connections=1)
    clients = [own_server.sqs(config=config) for _ in range(CLIENTS)]
    tries = Tries(clients)
    delays = random.Random(11)
    retried = 0
    with ThreadPoolExecutor(CLIENTS) as threads:
        for number in range(max(1, trials(100) // CLIENTS)):
            sent = board.fill([f"{number}" for number in range(2 * CLIENTS)])
            ready = threading.Barrier(CLIENTS + 1)

            def receive(sqs: Any, ready: threading.Barrier = ready) -> dict[str, Any]:
                ready.wait(STOP_TIMEOUT_S)
                # On FIFO boto3 makes up a ReceiveRequestAttemptId, the same for all tries.
                try:
                    answer: dict[str, Any] = sqs.receive_message(QueueUrl=board.url, VisibilityTimeout=HELD_S)
                except ReadTimeoutError:  # No try was answered in time, so it holds nothing.
                    return {}
                return answer

            tries.begin()
            receives = [threads.submit(receive, sqs) for sqs in clients]
            if number == 0 or delays.random() < 0.5:
                os.kill(own_server.process.pid, signal.SIGSTOP)
                ready.wait(STOP_TIMEOUT_S)
            else:
                ready.wait(STOP_TIMEOUT_S)
                time.sleep(delays.uniform(0, 0.01))
                os.kill(own_server.process.pid, signal.SIGSTOP)
            # The stall lasts until clients have given up a try and made another, or more than one.
            tries.wait_for(delays.choice([2, 2, 3]), receives)
            time.sleep(READ_TIMEOUT_S * delays.uniform(0, 1.1))
            os.kill(own_server.process.pid, signal.SIGCONT)
            answers = [each.result(CLIENT_TIMEOUT_S) for each in receives]
            retried += sum(answer["ResponseMetadata"]["RetryAttempts"] for answer in answers if answer)
            board.settle(sent, [answer.get("Messages", []) for answer in answers])
    assert retried, "no request was retried, so nothing was tried"
    board.judge(record_property)


@campaign
@pytest.mark.slow
@on_both_kinds
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("leave", [reset, socket.socket.close], ids=["reset", "close"])
def test_a_large_answer_that_nobody_reads_takes_nothing_from_the_retry(
    shared_server: RunningServer,
    queue_name: str,
    suffix: str,
    leave: Callable[[socket.socket], None],
    record_property: Record,
) -> None:
    board = make_board(shared_server, queue_name, suffix)
    address = urlsplit(shared_server.url)
    for _ in range(trials(20, share=10)):
        sent = board.fill([LARGE] * 10, group="all")
        receive = Receive(board, count=10)
        first = socket.socket()
        # So small a buffer that the answer cannot leave the server unless it is read.
        first.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        first.settimeout(STOP_TIMEOUT_S)
        first.connect((address.hostname, address.port))
        first.sendall(receive.to_bytes())
        assert first.recv(1) == b"H"  # So they are leased, and the answer is on its way.
        messages = receive.retry()
        assert {message["MessageId"] for message in messages} == sent
        leave(first)
        board.settle(sent, [messages])
    board.judge(record_property)
