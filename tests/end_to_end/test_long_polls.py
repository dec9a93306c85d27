"""A thousand long polls at once: they cost nothing while they wait, and a send wakes exactly one."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
from collections.abc import Iterator

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest

from tests.end_to_end.cutting_proxy import read_message
from tests.end_to_end.running import RunningServer, read_all, receive_bytes

pytestmark = pytest.mark.slow
POLLS = 1_000
WINDOW_S = 2.0
CPU_S_MAX = 0.2
FILES_MIN = 4_096


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    """Let this process have a connection for each poll."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < FILES_MIN:
        pytest.skip(f"a process may have only {most} files open here: {POLLS} polls were NOT tried")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, FILES_MIN), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


def answered(polls: selectors.BaseSelector, timeout_s: float) -> list[socket.socket]:
    """Return the polls that have an answer, as soon as one has or when the time is over."""
    ready = [key.fileobj for key, _ in polls.select(timeout_s)]
    return [connection for connection in ready if isinstance(connection, socket.socket)]


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_a_thousand_polls_cost_nothing_and_a_send_wakes_one(server: RunningServer) -> None:
    sqs = server.sqs()
    queue_url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    process = psutil.Process(server.process.pid)
    with contextlib.ExitStack() as stack:
        polls = stack.enter_context(selectors.DefaultSelector())
        for _ in range(POLLS):
            connection = stack.enter_context(server.connect())
            connection.sendall(receive_bytes(queue_url, wait_s=20))
            polls.register(connection, selectors.EVENT_READ)
        assert server.get("/healthz") == {"status": "ok"}
        before_s = cpu_s(process)
        assert answered(polls, WINDOW_S) == []
        assert cpu_s(process) - before_s < CPU_S_MAX

        woken: list[socket.socket] = []
        for number in range(3):
            sqs.send_message(QueueUrl=queue_url, MessageBody=f"for one, {number}")
            [one] = answered(polls, WINDOW_S)
            assert f"for one, {number}".encode() in read_message(one)
            polls.unregister(one)
            woken.append(one)
        # Whoever else had been woken has looked by now, and would have been answered if there had been anything.
        assert server.get("/healthz") == {"status": "ok"}
        assert answered(polls, 0) == []

        waiting = [key.fileobj for key in polls.get_map().values() if isinstance(key.fileobj, socket.socket)]
        assert len(waiting) == POLLS - len(woken)
        assert server.stop() == (0, "")
        for poll in waiting:
            answer = read_all(poll)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"<Message>" not in answer
