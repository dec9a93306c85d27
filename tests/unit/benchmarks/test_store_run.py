"""`python -m benchmarks store`, from its options to its report."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from benchmarks.cli.app import app
from benchmarks.process import run
from benchmarks.progress import Narrator
from benchmarks.report import print_store, to_json
from benchmarks.scratch import ACCOUNT, REGION
from benchmarks.store_run import Plan, StoreReport, run_store
from benchmarks.workload import Workload
from penstock.domain.queue import Queue, QueueAttributes, QueueName
from penstock.engine import Engine
from tests.support.postgres import PostgresServer

WORKLOAD = Workload(callers=4, batch=10, body_bytes=100)


def run_command(*words: str) -> int:
    code = app([*words], result_action="return_value")
    assert isinstance(code, int)
    return code


async def test_a_report_tells_rates_opening_times_and_memory(tmp_path: Path, narrator: Narrator) -> None:
    plan = Plan(messages=200, backlog=2_000, rounds=1, workload=WORKLOAD)
    report = await run_store(f"sqlite:{tmp_path / 'a.db'}", plan, narrator)
    assert report.phases.receive.messages == 200
    assert [trial.name for trial in report.lifecycles] == [
        "lifecycle",
        "log only",
        "lifecycle, 2,000 waiting",
        "lifecycle beside it",
    ]
    assert [each.name for each in report.ratios] == ["lifecycle to log only", "2,000 waiting to 1,000 waiting"]
    assert report.backlog is not None
    assert report.backlog.reopen_ms is not None
    assert report.memory_peak_bytes > 1_000_000
    assert msgspec.json.decode(to_json(report), type=StoreReport) == report
    shown = io.StringIO()
    print_store(report, Console(file=shown, width=120))
    for text in ("p99 ms", "lifecycle to log only", "opening with 2,000 waiting", "memory of this process"):
        assert text in shown.getvalue()


def test_it_leaves_neither_a_queue_nor_a_log_behind(tmp_path: Path, narrator: Narrator) -> None:
    async def queues_left() -> list[Queue]:
        async with Engine.open(url, upkeep=False) as engine:
            return await engine.store.list_queues(REGION, ACCOUNT, limit=10)

    url = f"sqlite:{tmp_path / 'a.db'}"
    report = run(run_store(url, Plan(messages=100, rounds=1, workload=WORKLOAD), narrator))
    assert report.swept
    assert list(tmp_path.glob("*.log")) == []
    assert run(queues_left()) == []


@pytest.mark.slow
async def test_a_named_postgres_store_is_left_without_queues_and_messages(
    postgres_server: PostgresServer, narrator: Narrator
) -> None:
    database = postgres_server.create_database()
    plan = Plan(messages=100, backlog=1_500, rounds=1, workload=WORKLOAD)
    report = await run_store(postgres_server.dsn(database), plan, narrator)
    assert report.swept
    assert report.backlog is not None
    assert report.backlog.reopen_ms is not None
    left = "SELECT (SELECT count(*) FROM penstock.queue), (SELECT count(*) FROM penstock.body)"
    assert postgres_server.psql(left, database) == "0|0"
    postgres_server.drop_database(database)


async def test_a_store_in_memory_has_no_log_to_be_compared_with(narrator: Narrator) -> None:
    plan = Plan(messages=100, backlog=1_500, rounds=1, workload=WORKLOAD)
    report = await run_store("memory:", plan, narrator)
    assert [each.name for each in report.ratios] == ["1,500 waiting to 1,000 waiting"]
    assert report.backlog is not None
    assert report.backlog.reopen_ms is None


def test_the_command_prints_json_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("store", "--messages", "50", "--rounds", "1", "--fifo", "--callers", "3", "--json") == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["plan"]["workload"] == {
        "callers": 3,
        "batch": 1,
        "body_bytes": 1024,
        "attempts": True,
        "fifo": True,
        "groups": 1_000,
    }
    assert not Path(report["store"].removeprefix("sqlite:")).parent.exists()


async def _make_orders(url: str) -> None:
    async with Engine.open(url, upkeep=False) as engine:
        await engine.store.create_queue(QueueName("eu-west-1", ACCOUNT, "orders"), QueueAttributes(), {})


def test_the_command_refuses_somebodys_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:{tmp_path / 'theirs.db'}"
    run(_make_orders(url))
    assert run_command("store", "--store", url) == 1
    assert "the store holds the queue orders (eu-west-1)" in capsys.readouterr().err


def test_the_command_tells_a_bad_address_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("store", "--store", "redis://localhost") == 1
    assert capsys.readouterr().err.startswith("benchmarks: There is no store of the kind redis:")


@pytest.mark.parametrize("option", ["--messages=0", "--batch=11", "--callers=0", "--backlog=-1", "--body-bytes=0"])
def test_the_command_refuses_numbers_out_of_range(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app(["store", option])
    assert f"for {option.partition('=')[0]}" in capsys.readouterr().err
