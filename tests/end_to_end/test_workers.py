"""Several worker processes behind one port, on PostgreSQL."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest

from tests.end_to_end.running import RunningServer, fail_to_serve
from tests.support.postgres import PostgresServer

STOP_TIMEOUT_S = 40.0
"""A worker that is just being started stops once it is; on a busy machine that is seconds later."""
LOOK_AGAIN_S = 0.05

# Every one of them starts three processes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def server(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[RunningServer]:
    name = postgres_server.create_database("template1")
    try:
        with RunningServer(tmp_path, "--port", "0", "--workers", "2", "--store", postgres_server.dsn(name)) as server:
            yield server
            # Killed without a word, it leaves nobody behind: its workers stop by themselves.
            left = workers_of(server)
            server.process.kill()
            gone, alive = psutil.wait_procs(left, timeout=STOP_TIMEOUT_S)
            assert not alive, gone
    finally:
        postgres_server.drop_database(name)


def workers_of(server: RunningServer) -> list[psutil.Process]:
    """Return the workers that run now: neither those that have ended nor those that are still being forked."""
    if server.process.poll() is not None:
        return []
    return [child for child in psutil.Process(server.process.pid).children() if is_worker(child)]


def is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # It ended since it was listed; a zombie is such a one too.
        return False


def test_workers_share_one_port_and_one_store(server: RunningServer) -> None:
    assert len(workers_of(server)) == 2
    url = server.sqs().create_queue(QueueName="shared")["QueueUrl"]
    # Every client has connections of its own, which the system gives to one worker or the other.
    for number in range(20):
        server.sqs().send_message(QueueUrl=url, MessageBody=str(number))
    bodies: set[str] = set()
    for _ in range(40):
        answer = server.sqs().receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        bodies |= {message["Body"] for message in answer.get("Messages", [])}
        if len(bodies) == 20:
            break
    assert bodies == {str(number) for number in range(20)}


def test_a_worker_that_dies_is_replaced(server: RunningServer) -> None:
    first, second = workers_of(server)
    first.send_signal(signal.SIGKILL)
    gone, _ = psutil.wait_procs([first], timeout=STOP_TIMEOUT_S)
    assert gone, "nobody has waited for the worker that was killed"
    while len(workers_of(server)) < 2:
        # Nothing tells of another's children, so look again and again; the test's own time limit ends this.
        _, alive = psutil.wait_procs([second], timeout=LOOK_AGAIN_S)
        assert alive, "the other worker ended too"
    assert second in workers_of(server)
    server.sqs().create_queue(QueueName="still-here")


def test_sigterm_stops_all_workers_in_good_order(server: RunningServer) -> None:
    workers = workers_of(server)
    code, rest = server.stop()
    assert (code, rest) == (0, "")
    assert not any(worker.is_running() for worker in workers)


def test_workers_need_postgresql(tmp_path: Path) -> None:
    line = fail_to_serve(tmp_path, "--workers", "2", "--store", "sqlite:a.db")
    assert "Several workers need PostgreSQL" in line
