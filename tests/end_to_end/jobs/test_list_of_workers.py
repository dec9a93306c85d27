"""The list of workers of real servers: of all nodes, and without those of a node that was killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.domain.job_limits import JobLimits
from tests.end_to_end.jobs.api import Api, Stream, close
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer
from tests.support.postgres import PostgresServer

TRIES = 2_000


def listed(server: RunningServer) -> dict[str, str]:
    return {worker["name"]: worker["kind"] for worker in server.get("/v1/workers")["workers"]}


def wait_until(true: Callable[[], bool]) -> None:
    """Ask again until it is so; each time takes a request."""
    assert any(true() for _ in range(TRIES))


def test_a_stream_and_a_poll_are_listed_until_the_stream_ends(api: Api, shared_server: RunningServer) -> None:
    stream = Stream(shared_server, api.queue, 3)
    assert api.dequeue(2, wait_ms=0) == []

    def told() -> list[tuple[str, str, int, int | None]]:
        workers = api.client.get("/v1/workers", params={"queue": api.queue}).json()["workers"]
        return [(one["name"], one["kind"], one["credit"], one["running"]) for one in workers]

    assert told() == [("streaming", "stream", 3, 0), ("w", "poll", 2, None)]
    stream.break_by(close)
    wait_until(lambda: told() == [("w", "poll", 2, None)])


@pytest.mark.slow
def test_nodes_list_each_others_workers_and_a_killed_nodes_disappear(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    database = postgres_server.create_database()
    folders = [tmp_path / name for name in ("killed", "left")]
    for folder in folders:
        folder.mkdir()
    arguments = ("--port", "0", "--store", postgres_server.dsn(database))
    try:
        with RunningServer(folders[0], *arguments) as killed, RunningServer(folders[1], *arguments) as left:
            stream = Stream(killed, "mail", 1)
            left.post("/v1/dequeue", {"queues": ["mail"], "worker": "polling"})
            everybody = {"streaming": "stream", "polling": "poll"}
            wait_until(lambda: listed(left) == everybody)
            wait_until(lambda: listed(killed) == everybody)
            killed.process.kill()
            killed.process.wait(timeout=STOP_TIMEOUT_S)
            assert listed(left) == everybody
            # As if the time had passed.
            stale_ms = JobLimits().worker_stale_ms
            age = f"UPDATE penstock.job_worker SET seen_at = seen_at - {stale_ms} WHERE name = 'streaming'"
            postgres_server.psql(age, database)
            assert listed(left) == {"polling": "poll"}
            stream.break_by(close)
            code, _ = left.stop()
            assert code == 0
        # It has taken its own off the list.
        assert postgres_server.psql("SELECT count(*) FROM penstock.job_worker WHERE name = 'polling'", database) == "0"
    finally:
        postgres_server.drop_database(database)
