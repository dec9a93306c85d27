"""kill -9 of servers and workers at random: every job that was taken ends once, as planned, with all its attempts."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.simulation.job_processes import ANSWER_S_MAX, QUEUE, SETTINGS, Producer, Servers, Workers
from tests.simulation.job_records import Run, check_events, check_holders, check_job, read_journals
from tests.support.job_api import JobApi
from tests.support.postgres import PostgresServer

KILLING_S = float(os.environ.get("PENSTOCK_TEST_KILLING_SECONDS", "0"))
"""For how long there are kills, if that is longer than it takes to kill so many while so many jobs come in."""

KILLS_MIN = 20
JOBS_MIN = 100
SEED = int(os.environ.get("PENSTOCK_TEST_KILLING_SEED", "5"))
BETWEEN_KILLS_S = (0.02, 0.5)
SERVER_SHARE = 0.25
WORKERS = 4
DRAIN_S_MAX = 120.0
KILLING_S_MAX = 180.0
PAGE = 200


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """An empty store, and how many servers it is for."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'penstock.db'}", 1
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.dsn(name), 2
    server.drop_database(name)


@pytest.mark.slow
@pytest.mark.timeout(int(KILLING_S + KILLING_S_MAX + DRAIN_S_MAX + 4 * ANSWER_S_MAX))
def test_every_job_ends_once_whoever_is_killed(store: tuple[str, int], tmp_path: Path) -> None:
    chance = random.Random(SEED)
    kills = 0
    with Servers(tmp_path, *store) as servers, closing(JobApi(servers.addresses, chance)) as api:
        made = api.insist("POST", "/v1/queues", {"name": QUEUE, "settings": SETTINGS}, seconds=ANSWER_S_MAX)
        assert made.status == 201, made.body
        with (
            Workers(tmp_path, servers.addresses, WORKERS) as workers,
            Producer(servers.addresses, random.Random(SEED + 1)) as producer,
        ):
            started_s = time.monotonic()
            while kills < KILLS_MIN or len(producer.plans) < JOBS_MIN or time.monotonic() < started_s + KILLING_S:
                assert time.monotonic() < started_s + KILLING_S + KILLING_S_MAX, "too few jobs come in"
                producer.check()
                victims = servers if chance.random() < SERVER_SHARE else workers
                victims.await_death(chance, chance.uniform(*BETWEEN_KILLS_S))
                victims.kill(chance)
                kills += 1
            producer.stop()
            await_drained(api)
        runs = read_journals(workers.journals)
        check_all(api, producer, runs)


def await_drained(api: JobApi) -> None:
    """Wait until all jobs are finished."""
    ends_s = time.monotonic() + DRAIN_S_MAX
    while True:
        counts = api.insist("GET", f"/v1/queues/{QUEUE}", seconds=ANSWER_S_MAX).json()["counts"]
        left = {state: number for state, number in counts.items() if number and state not in {"succeeded", "dead"}}
        if not left:
            return
        assert time.monotonic() < ends_s, f"jobs are stuck: {left}"
        threading.Event().wait(0.05)


def check_all(api: JobApi, producer: Producer, runs: dict[tuple[str, int], Run]) -> None:
    """Check all jobs that there are: those that were enqueued, each once, and no others."""
    assert {job_id for job_id, _ in runs} <= set(producer.plans)
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        path = f"/v1/jobs?queue={QUEUE}&limit={PAGE}" + (f"&cursor={cursor}" if cursor else "")
        page = api.insist("GET", path, seconds=ANSWER_S_MAX).json()
        found += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
    # The newest come first.
    assert found[::-1] == list(producer.plans)
    check_holders(producer, runs)
    for job_id, plan in producer.plans.items():
        job = api.insist("GET", f"/v1/jobs/{job_id}", seconds=ANSWER_S_MAX).json()
        check_job(job, plan, {key: run for key, run in runs.items() if key[0] == job_id})
        check_events(job, api.insist("GET", f"/v1/jobs/{job_id}/events", seconds=ANSWER_S_MAX).body)
