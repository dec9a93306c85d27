"""A thousand long polls at once: they cost nothing while they wait, and a send wakes exactly one."""

from __future__ import annotations

import contextlib
import selectors
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest

from tests.end_to_end.cutting_proxy import read_message
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer, many_files, read_all, receive_bytes

pytestmark = pytest.mark.slow
POLLS = 1_000
WINDOW_S = 2.0
CPU_S_MAX = 0.5
FILES = 4_096


@pytest.fixture
def timeless_server(store_url: str, tmp_path: Path) -> Iterator[RunningServer]:
    """A server whose clock stands still, so that no poll ends before the test does, however long that takes."""
    with (
        many_files(FILES),
        RunningServer(tmp_path, "--port", "0", "--store", store_url, "--clock", "manual") as server,
    ):
        yield server


def waiting_at(server: RunningServer) -> int:
    """Tell how many polls have looked, found nothing, and wait."""
    with urllib.request.urlopen(server.url + "/metrics", timeout=STOP_TIMEOUT_S) as page:
        text = page.read().decode()
    [line] = [line for line in text.splitlines() if line.startswith("penstock_long_polls_waiting ")]
    return int(float(line.split()[1]))


def answered(polls: selectors.BaseSelector, timeout_s: float) -> list[socket.socket]:
    """Return the polls that have an answer, as soon as one has or when the time is over."""
    ready = [key.fileobj for key, _ in polls.select(timeout_s)]
    return [connection for connection in ready if isinstance(connection, socket.socket)]


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_a_thousand_polls_cost_nothing_and_a_send_wakes_one(timeless_server: RunningServer) -> None:
    server = timeless_server
    sqs = server.sqs()
    queue_url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    process = psutil.Process(server.process.pid)
    with contextlib.ExitStack() as stack:
        polls = stack.enter_context(selectors.DefaultSelector())
        for _ in range(POLLS):
            connection = stack.enter_context(server.connect())
            connection.sendall(receive_bytes(queue_url, wait_s=20))
            polls.register(connection, selectors.EVENT_READ)
        while waiting_at(server) < POLLS:
            pass
        before_s = cpu_s(process)
        assert answered(polls, WINDOW_S) == []
        assert cpu_s(process) - before_s < CPU_S_MAX

        woken: list[socket.socket] = []
        for number in range(3):
            sqs.send_message(QueueUrl=queue_url, MessageBody=f"for one, {number}")
            [one] = answered(polls, STOP_TIMEOUT_S)
            assert f"for one, {number}".encode() in read_message(one)
            polls.unregister(one)
            woken.append(one)
        # A notification of the database may have another one look once more, in vain.
        while waiting_at(server) < POLLS - len(woken):
            pass
        assert waiting_at(server) == POLLS - len(woken)
        assert answered(polls, 0) == []

        waiting = [key.fileobj for key in polls.get_map().values() if isinstance(key.fileobj, socket.socket)]
        assert len(waiting) == POLLS - len(woken)
        assert server.stop() == (0, "")
        for poll in waiting:
            answer = read_all(poll)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"<Message>" not in answer
