"""`python -m benchmarks flood`: a real server, measured too shortly to tell anything."""

from __future__ import annotations

import io
import math
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from benchmarks.cli.app import app
from benchmarks.errors import WorkFailed
from benchmarks.http_servers import penstock_server
from benchmarks.jobs.flood import FloodPlan, FloodReport
from benchmarks.jobs.flood_load import Enqueues, FloodLoad, Pace, perform
from benchmarks.jobs.requests import JobRequests
from benchmarks.jobs.service import put_queue
from benchmarks.jobs.tables import print_flood
from benchmarks.report import to_json

QUEUE = "flooded"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\n\r\n"


def load(port: int, **fields: object) -> FloodLoad:
    given = {"port": port, "queue": QUEUE, "seconds": 0.3, "connections": 4, "payload_bytes": 64, **fields}
    return msgspec.convert(given, FloodLoad)


async def test_a_flood_tells_what_was_accepted_and_what_was_refused(tmp_path: Path) -> None:
    with penstock_server(tmp_path) as server:
        put_queue(server, QUEUE, {"rate": {"per_second": 0.001, "burst": 3}})
        took = await perform(load(server.port))
        assert len(took.accepted_ms) == 3
        assert set(took.refused) == {"rate_global"}
        assert took.refused["rate_global"] >= 1
        calm = await perform(load(server.port, queue="other", per_second=100.0, worked_per_second=100.0))
        assert calm.accepted_ms
        assert calm.refused == {}


async def test_what_comes_before_a_flood_has_grown_is_not_noted(tmp_path: Path) -> None:
    with penstock_server(tmp_path) as server:
        put_queue(server, QUEUE, {"rate": {"per_second": 0.001, "burst": 3}})
        took = await perform(load(server.port, unseen_s=10.0))
    assert (took.accepted_ms, took.refused) == ([], {})


def test_a_request_that_waited_for_an_answer_counts_from_when_it_was_due() -> None:
    prompt = Enqueues(JobRequests(1, QUEUE, 64), 0.0, math.inf, Pace(every_s=1_000.0))
    assert 0 < prompt.next_in_s() <= 1_000
    prompt.request()
    prompt.answered(ACCEPTED)
    late = Enqueues(JobRequests(1, QUEUE, 64), -math.inf, math.inf, Pace(every_s=1.0, first_s=-1_000.0))
    assert late.next_in_s() <= -999
    late.request()
    late.answered(ACCEPTED)
    assert prompt.accepted_ms[0] < 900_000 < late.accepted_ms[0]


async def test_what_is_neither_taken_nor_too_many_ends_a_flood(tmp_path: Path) -> None:
    with penstock_server(tmp_path) as server:
        put_queue(server, QUEUE, {"strict": True})
        with pytest.raises(WorkFailed, match="idempotency-key-needed"):
            await perform(load(server.port))


def test_the_command_keeps_its_report_which_is_shown_with_its_ratios(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["flood", "--sqlite-only", "--rounds", "1", "--seconds", "0.3", "--connections", "4", "--json"]
    assert app([*words, "--output", str(tmp_path)], result_action="return_value") == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=FloodReport)
    assert [trial.name for trial in report.trials] == ["SQLite, limited in rate", "SQLite, bounded in depth"]
    assert report.plan == FloodPlan(rounds=1, seconds=0.3, connections=4, postgres=False)
    [kept] = tmp_path.iterdir()
    assert msgspec.json.decode(kept.read_bytes(), type=FloodReport) == report
    assert msgspec.json.decode(to_json(report), type=FloodReport) == report
    console = Console(file=io.StringIO(), width=400)
    print_flood(report, console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for trial in report.trials:
        assert trial.name in shown
        assert trial.calm_samples
        assert trial.flood_samples
    assert "times that of calm" in shown
    assert "times as much came as was accepted" in shown
