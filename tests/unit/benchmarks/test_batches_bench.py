"""`python -m benchmarks batches`: real servers, measured too shortly to tell anything."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import penstock
from benchmarks.errors import BenchmarkFailed, WorkFailed
from benchmarks.http_servers import penstock_server
from benchmarks.jobs.batches import AFTER, BEFORE, LOADS, BatchesPlan, BatchesReport, Spent, run_batches
from benchmarks.jobs.load import perform
from benchmarks.jobs.service import Load
from benchmarks.jobs.tables import print_batches
from benchmarks.progress import Narrator

TINY = BatchesPlan(rounds=1, jobs=200, payload_bytes=64, postgres=False)
CHECKOUT = Path(penstock.__file__).parents[2]


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    spent = [
        Spent(store="SQLite", load="enqueued", server=BEFORE, cpu_us=[10.0, 100.0, 20.0]),
        Spent(store="SQLite", load="enqueued", server=AFTER, cpu_us=[5.0, 80.0, 18.0]),
        Spent(store="PostgreSQL", load="enqueued", server=AFTER, cpu_us=[1.0, 1.0, 1.0]),
    ]
    report = BatchesReport(started_at="", machine="", plan=TINY, spent=spent, notes=["a note"])
    assert report.ratios() == {("SQLite", "enqueued"): 0.8}
    shown = io.StringIO()
    print_batches(report, Console(file=shown, width=120))
    assert "0.80" in shown.getvalue()
    assert "a note" in shown.getvalue()


@pytest.mark.slow
async def test_two_servers_take_turns() -> None:
    report = await run_batches(TINY, CHECKOUT, None, Narrator())
    assert [(each.load, each.server) for each in report.spent] == [
        (load, server) for load in LOADS.values() for server in (BEFORE, AFTER)
    ]
    assert set(report.ratios()) <= {("SQLite", load) for load in LOADS.values()}


async def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkFailed, match="no checkout"):
        await run_batches(TINY, tmp_path, None, Narrator())


@pytest.mark.slow
async def test_a_drain_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with penstock_server(tmp_path) as server:
        load = Load(
            do="drain",
            port=server.port,
            queue="empty",
            jobs=1,
            batch=100,
            connections=1,
            payload_bytes=1,
            seconds_max=0.2,
        )
        with pytest.raises(WorkFailed, match="took more than"):
            await perform(load)
