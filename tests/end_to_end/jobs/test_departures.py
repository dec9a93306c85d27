"""Workers that vanish: whatever was offered to them goes back at once, all of it, and costs no attempt.

Offers last an hour here, so what comes back within a test did not come back by lapsing.
"""

from __future__ import annotations

import json
import signal
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for two calls here.

from tests.end_to_end.cutting_proxy import body_of, read_message
from tests.end_to_end.jobs.api import Api, Leave, Stream, close, poll_bytes, stream_bytes, ways_to_leave
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer, read_all

LARGE = "x" * 1_000_000


def narrow_connection(server: RunningServer) -> socket.socket:
    """Connect with so small a buffer that a large answer cannot leave the server unless it is read."""
    address = urlsplit(server.url)
    assert address.hostname is not None
    assert address.port is not None
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(STOP_TIMEOUT_S)
    connection.connect((address.hostname, address.port))
    return connection


def assert_back_at_no_cost(api: Api, job_ids: set[str]) -> None:
    """Assert that another worker gets all these jobs and carries them out, and that nothing else is left behind."""
    offers = api.dequeue_all(len(job_ids))
    assert {offer["id"] for offer in offers} == job_ids
    assert {(offer["attempt"], offer.get("failures", 0), offer.get("losses", 0)) for offer in offers} == {(1, 0, 0)}
    for verb in ("accept", "complete"):
        reports = [{"do": verb, "token": offer["token"]} for offer in offers]
        results = api.post("/v1/leases", {"reports": reports}).json()["results"]
        assert {result["status"] for result in results} == {200}
    assert api.counts() == {"succeeded": len(job_ids)}
    for job_id in job_ids:
        job = api.job(job_id)
        assert (job["attempts"], len(job["history"])) == (1, 1)


@ways_to_leave
def test_a_worker_that_leaves_while_offers_are_being_written_to_it_costs_nothing(
    api: Api, shared_server: RunningServer, leave: Leave
) -> None:
    api.make_queue()
    # Eight megabytes are more than the buffers of both ends hold.
    stored = {api.enqueue(LARGE) for _ in range(8)}
    connection = narrow_connection(shared_server)
    connection.sendall(stream_bytes(api.queue, credit=8))
    received = b""
    while b'"offer"' not in received:
        received += connection.recv(1_024)
    leave(connection)
    assert_back_at_no_cost(api, stored)


@ways_to_leave
def test_a_long_poll_whose_answer_was_not_written_whole_costs_nothing(
    api: Api, shared_server: RunningServer, leave: Leave
) -> None:
    api.make_queue()
    stored = {api.enqueue(LARGE) for _ in range(8)}
    connection = narrow_connection(shared_server)
    connection.sendall(poll_bytes(api.queue, count=8))
    assert connection.recv(1) == b"H"  # So they are offered, and the answer is on its way.
    leave(connection)
    assert_back_at_no_cost(api, stored)


@ways_to_leave
def test_a_stream_that_breaks_gives_back_what_was_not_accepted_and_nothing_else(
    api: Api, shared_server: RunningServer, leave: Leave
) -> None:
    api.make_queue()
    stored = {api.enqueue() for _ in range(10)}
    stream = Stream(shared_server, api.queue, credit=10)
    accepted, *_ = stream.offers(10)
    assert api.report(accepted["token"], "accept").status_code == 200
    stream.break_by(leave)
    back = api.dequeue_all(9)
    assert {offer["id"] for offer in back} == stored - {accepted["id"]}
    assert {offer["attempt"] for offer in back} == {1}
    # What runs goes on: its lease does not hang on the stream.
    assert api.report(accepted["token"], "complete").json()["state"] == "succeeded"


@ways_to_leave
def test_a_poll_that_is_gone_when_a_job_comes_costs_nothing(
    api: Api, shared_server: RunningServer, leave: Leave
) -> None:
    api.make_queue()
    server = psutil.Process(shared_server.process.pid)
    for number in range(3):
        poller = shared_server.connect()
        poller.sendall(poll_bytes(api.queue, count=1))
        assert shared_server.get("/healthz") == {"status": "ok"}  # So the poll before it was read.
        body = {"queue": api.queue, "task": "greet", "payload": number}
        sender = threading.Thread(target=api.post, args=("/v1/jobs", body))
        server.send_signal(signal.SIGSTOP)
        sender.start()
        leave(poller)
        server.send_signal(signal.SIGCONT)
        sender.join(STOP_TIMEOUT_S)
        [offer] = api.dequeue()
        assert (offer["payload"], offer["attempt"]) == (number, 1)


@ways_to_leave
def test_an_idle_stream_that_breaks_is_noticed_at_once(api: Api, shared_server: RunningServer, leave: Leave) -> None:
    api.make_queue()
    streams = [Stream(shared_server, api.queue, credit=1) for _ in range(3)]
    for stream in streams:
        stream.break_by(leave)
    for stream in streams:
        while credit(api, stream).status_code == 200:
            pass  # The server has not read the end of the connection yet.
        assert credit(api, stream).json()["type"] == "urn:penstock:problem:stream-not-found"
    stored = {api.enqueue()}
    assert_back_at_no_cost(api, stored)


def credit(api: Api, stream: Stream) -> Any:
    return api.post(f"/v1/dequeue/{stream.name}/credit", {"add": 0})


def test_credit_says_how_many_jobs_a_stream_offers(api: Api, shared_server: RunningServer) -> None:
    api.make_queue()
    for _ in range(5):
        api.enqueue()
    stream = Stream(shared_server, api.queue, credit=2)
    first, _ = stream.offers(2)
    assert credit(api, stream).json() == {"credit": 2, "taken": 2}
    api.report(first["token"], "accept")
    api.report(first["token"], "complete")
    stream.offers(1)
    assert api.post(f"/v1/dequeue/{stream.name}/credit", {"add": 2}).json()["credit"] == 4
    stream.offers(2)
    assert credit(api, stream).json() == {"credit": 4, "taken": 4}
    stream.break_by(close)


def test_a_server_that_stops_tells_its_workers_and_takes_back_what_they_did_not_accept(
    server: RunningServer, queue_name: str
) -> None:
    def post(path: str, body: object) -> Any:
        return server.post(path, body)

    for _ in range(2):
        post("/v1/jobs", {"queue": queue_name, "task": "greet"})
    full = Stream(server, queue_name, credit=2)
    assert len(full.offers(2)) == 2
    idle = Stream(server, queue_name, credit=2)
    poller = server.connect()
    poller.sendall(poll_bytes(queue_name, count=1))
    server.get("/healthz")  # So the poll before it was read.
    server.process.send_signal(signal.SIGTERM)
    for stream in (full, idle):
        while not (line := stream.line()).get("drain"):
            assert line.get("keep_alive")
        assert stream.at_end()
        stream.break_by(close)
    answer = read_message(poller)
    assert read_all(poller) == b""
    poller.close()
    assert json.loads(body_of(answer)) == {"offers": [], "drain": True}
    server.process.communicate(timeout=STOP_TIMEOUT_S)
    assert server.process.returncode == 0
