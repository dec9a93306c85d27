"""A server in a thread of the test's process."""

from __future__ import annotations

import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import penstock.testing
from penstock.domain.errors import StoreUrlInvalid
from penstock.server.config import ServerConfig, StartFailure
from penstock.testing import RunningServer, serve


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serve() as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[Any]:
    client = server.sqs_client()
    yield client
    client.close()


_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _threads_before() -> None:
    # Servers that other tests share may run in this process, too.
    _others.clear()
    _others.update(threading.enumerate())


def server_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "penstock-server" and one not in _others]


def long_polls(server: RunningServer) -> int:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        [waiting] = re.findall(r"^penstock_long_polls_waiting (\d+)", answer.read().decode(), re.MULTILINE)
    return int(waiting)


def test_a_server_is_there_inside_and_gone_after() -> None:
    with serve() as server:
        port = int(server.url.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port)).close()
        assert server_threads() == ["penstock-server"]
    assert server_threads() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_two_servers_run_side_by_side() -> None:
    with serve() as one, serve() as other:
        assert one.url != other.url
        one.clock.advance(seconds=3_600)
        assert one.clock.now_ms() - other.clock.now_ms() > 3_590_000


def test_a_long_poll_ends_when_the_clock_is_moved(server: RunningServer, client: Any) -> None:
    queue = client.create_queue(QueueName="orders")["QueueUrl"]
    client.send_message(QueueUrl=queue, MessageBody="a", DelaySeconds=10)
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(client.receive_message, QueueUrl=queue, WaitTimeSeconds=20)
        server.clock.advance(seconds=10)
        assert poll.result(10)["Messages"][0]["Body"] == "a"


def test_a_stop_ends_long_polls_with_an_empty_answer() -> None:
    with ThreadPoolExecutor(1) as pool:
        with serve() as server:
            client = server.sqs_client()
            queue = client.create_queue(QueueName="orders")["QueueUrl"]
            poll = pool.submit(client.receive_message, QueueUrl=queue, WaitTimeSeconds=20)
            while long_polls(server) == 0:
                assert not poll.done()
        assert "Messages" not in poll.result(10)
        client.close()


def test_further_settings_of_a_client_are_its_makers(server: RunningServer) -> None:
    from botocore.config import Config  # noqa: PLC0415 # As the product does.

    client = server.sqs_client(region_name="eu-central-1", config=Config(read_timeout=7))
    assert (client.meta.region_name, client.meta.config.read_timeout) == ("eu-central-1", 7)
    assert client.meta.config.proxies == {}
    client.close()


def test_a_proxy_of_the_environment_is_not_asked(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    client = server.sqs_client()
    assert client.list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200
    client.close()


def test_the_system_clock_cannot_be_moved() -> None:
    with serve(ServerConfig(port=0, store="memory:")) as server, pytest.raises(RuntimeError, match="nobody can move"):
        _ = server.clock


def test_time_does_not_go_back_and_ends_with_the_server() -> None:
    with serve() as server:
        with pytest.raises(ValueError, match="backwards"):
            server.clock.advance(seconds=-1)
        server.clock.advance(ms=1)
    with pytest.raises(RuntimeError, match="has stopped"):
        server.clock.advance(seconds=1)


def test_what_keeps_a_server_from_starting_is_raised() -> None:
    with serve() as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(StartFailure, match="in use"), serve(ServerConfig(port=port, store="memory:")):
            pytest.fail("there is no server here")
    with pytest.raises(StoreUrlInvalid), serve(ServerConfig(port=0, store="nowhere:")):
        pytest.fail("nor here")
    assert server_threads() == []


def test_what_a_test_raises_is_not_hidden_by_the_stop() -> None:
    with pytest.raises(ZeroDivisionError), serve():
        raise ZeroDivisionError
    assert server_threads() == []


def test_every_public_name_is_there_and_no_other() -> None:
    for name in penstock.testing.__all__:
        assert getattr(penstock.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = penstock.testing.Nothing
