"""Workers that hang: a stopped process keeps each job from others once, for as long as one offer or lease lasts.

Only what it has is to lapse, however slow the machine is, so all later offers and leases last for an hour.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for two calls here.
import pytest

from tests.end_to_end.jobs.api import HOUR_MS, Api, poll_bytes
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer

OFFER_MS = 2_000
LEASE_MS = 2_000
_ROOT = Path(__file__).parents[3]


class StreamWorker:
    """A worker process with a stream. What it says comes line by line."""

    def __init__(self, server: RunningServer, queue: str, credit: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.stream_worker", server.url, queue, "stoppable", str(credit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        assert self.says() == "open"

    def says(self) -> str:
        """Read the next line that it writes."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        """Stop it, as a debugger or a machine out of memory does. Its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)
        while psutil.Process(self._process.pid).status() != psutil.STATUS_STOPPED:
            pass  # The signal is on its way.

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=STOP_TIMEOUT_S)


@contextlib.contextmanager
def stream_worker(server: RunningServer, queue: str, credit: int) -> Iterator[StreamWorker]:
    worker = StreamWorker(server, queue, credit)
    try:
        yield worker
    finally:
        worker.end()


def returned(api: Api) -> int:
    """Count the offers that came to nothing."""
    lines = api.client.get("/metrics").text.splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith("penstock_jobs_returned_total")]
    return int(float(value))


def until_offered(api: Api, count: int) -> None:
    """Wait until this many jobs are or were offered, which nothing signals; make later offers last long."""
    while api.counts() != {"offered": count} and not returned(api):
        pass
    api.change_queue(offer_ms=HOUR_MS)


def do_all(api: Api, job_ids: set[str]) -> None:
    """Carry out all these jobs as a healthy worker; none of them may keep it waiting for as long as a poll lasts."""
    left = set(job_ids)
    while left:
        offers = api.dequeue(len(left))
        assert offers, f"{len(left)} jobs did not come"
        for verb in ("accept", "complete"):
            reports = [{"do": verb, "token": offer["token"]} for offer in offers]
            results = api.post("/v1/leases", {"reports": reports}).json()["results"]
            assert {result["status"] for result in results} == {200}
        left -= {offer["id"] for offer in offers}


@pytest.mark.slow
@pytest.mark.parametrize("credit", [3, 20])
def test_jobs_offered_to_a_stopped_worker_lose_one_offers_time(
    own_api: Api, server: RunningServer, credit: int
) -> None:
    api = own_api
    api.make_queue(offer_ms=OFFER_MS)
    with stream_worker(server, api.queue, credit) as worker:
        worker.stop()
        # It is alone, so these are offered to it first.
        stored = {api.enqueue() for _ in range(credit)}
        until_offered(api, credit)
        do_all(api, stored)
        # Each lapsed once; and once more it may have been taken in the very instant, and given back at once.
        before = returned(api)
        assert 1 <= before <= 2 * credit
        do_all(api, {api.enqueue() for _ in range(2 * credit)})
        assert returned(api) == before
        log = server.errors.read_text()
        assert log.count("is offered nothing until it is heard from") == 1
        # Once it goes on it is late for what it was offered, and that shows that it is alive.
        worker.go_on()
        job_id = api.enqueue()
        assert worker.says() == f"accepted {job_id}"
        assert worker.says() == f"done {job_id}"


@pytest.mark.slow
def test_the_job_of_a_worker_that_is_stopped_while_it_runs_is_taken_over(own_api: Api, server: RunningServer) -> None:
    api = own_api
    api.make_queue(offer_ms=OFFER_MS, lease_ms=LEASE_MS, retry={"backoff_ms": 0})
    with stream_worker(server, api.queue, 1) as worker:
        job_id = api.enqueue("hold")
        assert worker.says() == f"accepted {job_id}"
        worker.stop()
        api.change_queue(offer_ms=HOUR_MS, lease_ms=HOUR_MS)
        do_all(api, {job_id})
        job = api.job(job_id)
        assert (job["losses"], [attempt["outcome"] for attempt in job["history"]]) == (1, ["lost", "succeeded"])
        assert returned(api) == 0


def test_a_worker_that_hangs_with_many_polls_open_keeps_a_job_once(own_api: Api, server: RunningServer) -> None:
    api = own_api
    api.make_queue(offer_ms=OFFER_MS)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            poller = stack.enter_context(server.connect())
            poller.sendall(poll_bytes(api.queue, count=1, worker="hung"))
            assert server.get("/healthz") == {"status": "ok"}  # So the poll before it was read.
        job_id = api.enqueue()
        until_offered(api, 1)
        do_all(api, {job_id})
        # It lapsed once; and once more it may have been taken in the very instant, and given back at once.
        assert 1 <= returned(api) <= 2
