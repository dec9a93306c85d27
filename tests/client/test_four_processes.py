"""Four processes use the same verbs on one file, by async and by sync methods, and what they did adds up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Penstock, value_of
from tests.client.sharing_client import JOBS, PROCESSES, QUEUE
from tests.support.embedded import PATIENCE_S


@contextmanager
def processes(url: str) -> Iterator[list[subprocess.Popen[str]]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.client.sharing_client", url, str(number), ("async", "sync")[number % 2]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate(timeout=PATIENCE_S)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["sqlite", "http-sqlite", "postgres-in-process"])
def test_what_four_processes_do_adds_up(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    if kind == "sqlite":
        url = f"sqlite:{tmp_path / 'jobs.db'}"
    elif kind == "http-sqlite":
        url = request.getfixturevalue("sqlite_server").url
    else:
        request.getfixturevalue("postgres_node")
        url = request.getfixturevalue("postgres_url")
    with processes(url) as started, Penstock(url, timeout=60) as app:
        told = []
        for process in started:
            assert process.stdout is not None
            told.append(json.loads(process.stdout.readline()))
        enqueued = [job_id for each in told for job_id in each["enqueued"]]
        completed = [job_id for each in told for job_id in each["completed"]]
        assert len(enqueued) == len(set(enqueued)) == JOBS
        assert sorted(completed) == sorted(enqueued), "each job was completed, and by one process"
        assert sum(value for each in told for value in each["completed"].values()) == sum(range(JOBS))
        assert app.sync.queues.get(QUEUE).counts["succeeded"] == JOBS
        seen = {value_of(app.sync.jobs.result(job_id).result) for job_id in enqueued}
        assert seen == set(range(JOBS))
        names = {queue.name for queue in app.sync.queues.list(limit=500).queues}
        assert {f"own-{number}" for number in range(PROCESSES)} < names
        if kind == "sqlite":
            record = json.loads(Path(f"{tmp_path}/jobs.db.lock").read_text())
            assert record["pid"] not in {process.pid for process in started}
        for process in started:
            process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0
