"""`python -m benchmarks jobs`: real servers, measured too shortly to tell anything, and systems that are pretended."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from benchmarks.cli.app import app
from benchmarks.errors import BenchmarkFailed, ServerUnavailable, WorkFailed
from benchmarks.http_servers import penstock_server
from benchmarks.jobs import redis_systems
from benchmarks.jobs.contest import JOBS_MAX, JOBS_MIN, JobsRate, JobsTrial, compete, measure, ratio
from benchmarks.jobs.load import perform
from benchmarks.jobs.program import running
from benchmarks.jobs.redis_peers import peer
from benchmarks.jobs.redis_systems import PeerName, RedisSystem, redis_host
from benchmarks.jobs.run import JobsPlan, JobsReport, compare, run_jobs
from benchmarks.jobs.service import Load
from benchmarks.jobs.store_cycles import JobCycles
from benchmarks.jobs.tables import print_jobs
from benchmarks.peers.fetching import default_cache
from benchmarks.progress import Narrator
from benchmarks.report import to_json
from benchmarks.timing import Budget
from penstock.domain.job import JobState
from penstock.domain.job_queue import JobQueueSettings
from penstock.store.port import Store

TINY = JobsPlan(rounds=1, seconds=0.05, connections=4, payload_bytes=64, postgres=False, peers=False)


class Pretended:
    """A system that says that it takes so long for each job."""

    def __init__(self, enqueue_s: float, work_s: float, order: list[str] | None = None, name: str = "") -> None:
        self._enqueue_s = enqueue_s
        self._work_s = work_s
        self._order = [] if order is None else order
        self._name = name

    async def enqueue(self, jobs: int) -> float:
        self._order.append(self._name)
        return jobs * self._enqueue_s

    async def work(self, jobs: int) -> float:
        return jobs * self._work_s

    def pids(self) -> Sequence[int]:
        return [os.getpid()]


def trial(name: str, *jobs_per_s: float) -> JobsTrial:
    rounds = [
        JobsRate(jobs=1, enqueued_per_s=1.0, worked_per_s=1.0, jobs_per_s=each, cpu_us_per_job=1.0)
        for each in jobs_per_s
    ]
    return JobsTrial.of(name, rounds)


async def test_a_whole_life_takes_as_long_as_both_of_its_halves() -> None:
    rate = await measure(Pretended(0.001, 0.003), 100)
    assert (rate.enqueued_per_s, rate.worked_per_s, rate.jobs_per_s) == (1000.0, 333.3, 250.0)


async def test_a_system_that_takes_no_time_is_not_believed() -> None:
    with pytest.raises(WorkFailed):
        await measure(Pretended(0.0, 0.001), 100)


async def test_each_system_gets_as_many_jobs_as_it_does_in_the_time() -> None:
    systems = {"slow": Pretended(1.0, 1.0), "fair": Pretended(0.001, 0.001), "fast": Pretended(1e-9, 1e-9)}
    trials = await compete(systems, rounds=2, seconds=1.0)
    assert [[rate.jobs for rate in each.rounds] for each in trials] == [[JOBS_MIN] * 2, [500] * 2, [JOBS_MAX] * 2]


async def test_systems_take_turns_and_each_begins_once() -> None:
    order: list[str] = []
    await compete({name: Pretended(0.01, 0.01, order, name) for name in "abc"}, rounds=3, seconds=0.5)
    assert "".join(order[6:]) == "abcbcacab"


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    found = ratio(trial("ours", 10, 100, 40), trial("theirs", 5, 10, 10), wanted=5.0)
    assert (found.name, found.value, found.reached) == ("ours to theirs", 4.0, False)


def test_each_of_ours_is_set_beside_each_peer() -> None:
    names = ["Penstock on SQLite, one by one", "Penstock on SQLite, in hundreds"]
    names += ["Celery on durable Redis, one by one", "RQ on Redis as it comes, in hundreds"]
    ratios = compare({name: trial(name, 8.0) for name in names})
    assert [(each.name, each.wanted) for each in ratios] == [
        (f"{names[0]} to {names[2]}", 2.0),
        (f"{names[1]} to {names[2]}", 2.0),
        (f"{names[1]} to {names[3]}", None),
    ]


@pytest.mark.parametrize("batch", [1, 10])
async def test_cycles_on_a_store_complete_the_jobs_that_they_enqueue(store: Store, batch: int) -> None:
    queue, _ = await store.jobs.create_queue("q", JobQueueSettings())
    cycles = JobCycles(store.jobs, queue, callers=3, batch=batch, payload_bytes=64)
    rate = await cycles.cycle(Budget(messages=60))
    counts = (await store.jobs.counts(queue)).by_state
    assert counts[JobState.SUCCEEDED] == rate.messages
    assert sum(counts.values()) == 60


async def test_a_refused_job_ends_the_cycles(store: Store) -> None:
    queue, _ = await store.jobs.create_queue("q", JobQueueSettings(depth_max=1))
    with pytest.RaisesGroup(pytest.RaisesExc(WorkFailed, match="a job was refused")):
        await JobCycles(store.jobs, queue, callers=1, batch=2, payload_bytes=64).cycle(Budget(messages=2))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 7])
async def test_all_jobs_are_enqueued_and_worked_off_over_http(tmp_path: Path, batch: int) -> None:
    with penstock_server(tmp_path) as server:
        load = Load(do="enqueue", port=server.port, queue="q", jobs=20, batch=batch, connections=3, payload_bytes=64)
        assert await perform(load) > 0
        assert await counts(server.port) == {"queued": 20}
        assert await perform(msgspec.structs.replace(load, do="work")) > 0
        assert await counts(server.port) == {"succeeded": 20}


async def counts(port: int) -> dict[str, int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/queues/q HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    found = json.loads(answer.partition(b"\r\n\r\n")[2])["counts"]
    return {state: number for state, number in found.items() if number}


@pytest.mark.slow
async def test_a_report_tells_of_systems_and_stores(narrator: Narrator) -> None:
    report = await run_jobs(TINY, None, narrator)
    assert [each.name for each in report.systems] == [
        "Penstock on SQLite, one by one",
        "Penstock on SQLite, in hundreds",
    ]
    assert [each.name for each in report.stores] == ["SQLite, one by one", "SQLite, in tens", "SQLite, in hundreds"]
    assert all(each.jobs_per_s > 0 for each in report.systems)
    assert msgspec.json.decode(to_json(report), type=JobsReport) == report
    shown = io.StringIO()
    print_jobs(report, Console(file=shown, width=160))
    for text in ("worked off/s", "Penstock on SQLite, in hundreds", "The stores by themselves", "SQLite, in tens"):
        assert text in shown.getvalue()


@pytest.mark.slow
def test_the_command_keeps_its_result_and_says_what_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_redis() -> str:
        raise ServerUnavailable("redis-server is not on the PATH")

    monkeypatch.setattr("benchmarks.jobs.run.find_redis", without_redis)
    words = "jobs --sqlite-only --no-stores --rounds 1 --seconds 0.05 --connections 4 --json --output"
    assert app([*words.split(), str(tmp_path)], result_action="return_value") == 0
    [path] = tmp_path.glob("jobs-*.json")
    report = json.loads(path.read_text())
    assert report == json.loads(capsys.readouterr().out)
    assert report["notes"] == ["Celery and RQ were left out: redis-server is not on the PATH."]


def test_redis_is_looked_for_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerUnavailable, match="redis-server is not on the PATH"):
        redis_systems.find_redis()


async def test_a_program_that_ends_says_why(tmp_path: Path) -> None:
    broken = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    async with running(broken, tmp_path, "broken") as program:
        with pytest.raises(BenchmarkFailed, match="no such luck"):
            await program.ask({}, seconds_max=30)


async def test_what_a_program_could_not_do_is_told(tmp_path: Path) -> None:
    unable = [sys.executable, "-c", 'input(); print(\'{"failure": "it is closed"}\')']
    async with running(unable, tmp_path, "unable") as program:
        with pytest.raises(WorkFailed, match="it is closed"):
            await program.ask({}, seconds_max=30)


class Counted:
    """A producer of a system that completes everything at once."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def enqueue(self, payloads: list[str]) -> None:
        assert {len(payload) for payload in payloads} == {50}
        self.sizes.append(len(payloads))

    def completed(self) -> int:
        return 3 + sum(self.sizes)


def test_a_producer_enqueues_and_waits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue = {"do": "enqueue", "jobs": 7, "batch": 3, "callers": 2, "payload_bytes": 50}
    wait = {"do": "wait", "completed": 7, "seconds_max": 1.0}
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{json.dumps(enqueue)}\n{json.dumps(wait)}\n"))
    producer = Counted()
    peer.produce(producer)
    assert sorted(producer.sizes) == [1, 3, 3]
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(wait | {"seconds_max": 0.0, "completed": 8})))
    with pytest.raises(SystemExit, match="not completed"):
        peer.produce(producer)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["celery", "rq"])
async def test_a_peer_runs_what_it_is_given(tmp_path: Path, name: PeerName) -> None:
    python = default_cache() / redis_systems.PACKAGES.label / "bin" / "python"
    try:
        redis_systems.find_redis()
    except ServerUnavailable as error:
        pytest.skip(f"Celery and RQ were NOT tried: {error}")
    if not python.exists():
        pytest.skip("Celery and RQ were NOT tried: they are not in the cache, and tests fetch nothing")
    async with redis_host(name, python, tmp_path, durable=False) as host:
        rate = await measure(RedisSystem(host, 2, 64), 10)
    assert rate.jobs_per_s > 0
