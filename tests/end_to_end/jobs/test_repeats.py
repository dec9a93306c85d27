"""Answers cut off after the commit, and servers killed: who sends the same request again doubles and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.domain.ids import OrderedIds
from tests.end_to_end.cutting_proxy import Cut, CuttingProxy
from tests.end_to_end.jobs.api import Api, Stream
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer
from tests.support.campaigns import campaign, trials


def persistently(client: httpx.Client, path: str, body: object) -> httpx.Response:
    """Post the same request until an answer comes."""
    while True:
        try:
            return client.post(path, json=body)
        except httpx.TransportError:
            continue


def client_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=STOP_TIMEOUT_S, trust_env=False)


@campaign
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_as_many_jobs_as_enqueues_whose_answers_were_cut(
    api: Api, shared_server: RunningServer, record_property: Callable[[str, object], None]
) -> None:
    number = trials(1_000)
    ids = OrderedIds()
    replayed = 0
    with CuttingProxy(shared_server.url) as proxy, client_of(proxy.url) as client:
        for place in range(number):
            job_id = ids.new_id()
            proxy.cut_next(*[Cut.RESET, Cut.CLOSE][: 1 + place % 2])
            job = {"queue": api.queue, "task": "greet", "id": job_id}
            batch = place % 3 == 0
            body: dict[str, Any] = {"jobs": [job]} if batch else job
            answer = persistently(client, "/v1/jobs/batch" if batch else "/v1/jobs", body).json()
            told = answer["results"][0]["job"] if batch else answer
            assert told["id"] == job_id
            replayed += told["replayed"]
        cut = len(proxy.cut_answers)
    assert api.counts() == {"queued": number}
    record_property("evidence", f"{cut} answers cut after the commit: {number} jobs, {replayed} of them told again")


@pytest.mark.slow
def test_what_was_offered_to_a_server_that_was_killed_is_offered_again(
    store_url: str, tmp_path: Path, queue_name: str
) -> None:
    """Offers last an hour here, so what comes back did not come back by lapsing."""
    arguments = ("--port", "0", "--store", store_url)
    wanted = {"queues": [queue_name], "count": 2, "worker": "w", "request_id": "r-1"}
    with RunningServer(tmp_path, *arguments) as server, client_of(server.url) as client:
        api = Api(client, queue_name)
        api.make_queue()
        stored = [api.enqueue() for _ in range(4)]
        polled = api.post("/v1/dequeue", wanted).json()["offers"]
        stream = Stream(server, queue_name, 2, request_id="s-1")
        streamed = [stream.line()["offer"] for _ in range(2)]
        assert sorted(offer["id"] for offer in polled + streamed) == sorted(stored)
        server.process.kill()
        server.process.wait(STOP_TIMEOUT_S)
        stream.connection.close()
    with RunningServer(tmp_path, *arguments) as server, client_of(server.url) as client:
        api = Api(client, queue_name)
        again = api.post("/v1/dequeue", wanted).json()["offers"]
        assert sorted(offer["id"] for offer in again) == sorted(offer["id"] for offer in polled)
        stream = Stream(server, queue_name, 2, request_id="s-1")
        again += [stream.line()["offer"] for _ in range(2)]
        for before in polled + streamed:
            assert api.report(before["token"], "accept").status_code == 409
        for offer in again:
            assert offer["attempt"] == 1
            assert api.report(offer["token"], "accept").status_code == 200
            assert api.report(offer["token"], "complete").status_code == 200
        assert api.counts() == {"succeeded": 4}
        stream.connection.close()


def test_a_change_of_credit_whose_answer_was_cut_is_one(api: Api, shared_server: RunningServer) -> None:
    api.make_queue()
    stream = Stream(shared_server, api.queue, 1)
    with CuttingProxy(shared_server.url) as proxy, client_of(proxy.url) as client:
        proxy.cut_next(Cut.RESET, Cut.CLOSE)
        body = {"add": 2, "request_id": "c-1"}
        answer = persistently(client, f"/v1/dequeue/{stream.name}/credit", body)
    assert answer.json() == {"credit": 3, "taken": 0}
    stream.connection.close()


def test_the_health_of_the_server_is_told_in_short(shared_server: RunningServer) -> None:
    assert shared_server.get("/health") == {"status": "ok"}
