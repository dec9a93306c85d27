"""`python -m benchmarks library`: what follows from figures; and Penstock alone, measured too shortly to mean much."""

from __future__ import annotations

import io
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from rich.console import Console

from benchmarks.cli.library import LibraryName
from benchmarks.errors import WorkFailed
from benchmarks.library.catalogue import LIBRARIES, entries, peer_packages, river_program
from benchmarks.library.findings import Extent, Killed, LibraryReport, Result
from benchmarks.library.ledger import Ledger
from benchmarks.library.measures import BARS, CEILINGS, MEASURES
from benchmarks.library.programs.program import CALLERS, Quota
from benchmarks.library.programs.tasks import RECORD
from benchmarks.library.run import run_library
from benchmarks.library.stage import Stage
from benchmarks.library.stores import Store
from benchmarks.library.tables import draw, print_library, to_markdown
from benchmarks.progress import Narrator

TINY = msgspec.structs.replace(
    Extent.quick(), seconds=0.05, enqueue_seconds=0.02, pace_seconds=0.05, kill_jobs=60, kill_wait_seconds=0.5
)


def _report(*results: Result) -> LibraryReport:
    kinds = sorted({result.kind for result in results}, reverse=True)
    return LibraryReport(
        started_at="", machine="here", kinds=kinds, extent=TINY, versions=[], results=list(results), notes=["a note"]
    )


def _result(library: str, kind: str = "durable", **figures: float) -> Result:
    return msgspec.convert({"library": library, "kind": kind, "rounds": [figures]}, Result)


def _ledger(path: Path, *numbers: int) -> Ledger:
    ledger = Ledger(path / "ledger")
    ledger.path.write_bytes(b"".join(RECORD.pack(number, 0, 1) for number in numbers))
    return ledger


def test_a_ledger_shows_what_was_lost_and_what_was_doubled(tmp_path: Path) -> None:
    assert _ledger(tmp_path, 0, 2, 3, 2, 9).judge(range(5)) == (2, 1)


async def test_a_stage_waits_for_every_job_and_not_for_a_number_of_effects(tmp_path: Path) -> None:
    stage = _stage(_ledger(tmp_path, 0, 1, 1), tmp_path)
    stage.jobs = 2
    assert [effect.number for effect in await stage.finish(0, 0)] == [0, 1, 1]
    stage.jobs = 3
    with pytest.raises(WorkFailed, match="1 of 3 jobs were not run"):
        await stage.finish(0, 0, seconds_max=0.0)


def _stage(ledger: Ledger, folder: Path) -> Stage:
    entry = entries(["penstock"], ["durable"])[0]
    return Stage(entry, Store(address="", pids=list), folder, ledger)


def test_a_quota_hands_out_each_number_once_and_then_ends() -> None:
    quota = Quota({"task": "noop", "argument": 7, "first": 10, "count_max": 5, "seconds": 0})
    assert quota.take(3) == [("noop", 10, 7), ("noop", 11, 7), ("noop", 12, 7)]
    assert [call[1] for call in quota.singles()] == [13, 14]
    assert quota.take(CALLERS) == []
    assert quota.answer()["count"] == 5


def test_multiples_are_of_the_best_python_peer_of_the_class() -> None:
    report = _report(
        _result("penstock", drain_1=300.0, start_p50_ms=2.0),
        _result("pgqueuer", drain_1=100.0, start_p50_ms=4.0),
        _result("celery", drain_1=50.0, start_p50_ms=1.0),
        _result("river", drain_1=1000.0),
        _result("celery", "defaults", drain_1=600.0),
    )
    best = report.best_peer("durable", MEASURES["drain_1"])
    assert best is not None
    assert (best[0].name, best[1]) == ("pgqueuer", 100.0)
    ratios = {each.name: each.value for each in report.ratios()}
    assert ratios["Penstock, drain of no-ops, 1 worker, to PgQueuer"] == 3.0
    shown = to_markdown(report)
    assert "| start latency p50 at 200/s | Celery, 1.0 ms | 0.50 |" in shown
    assert "| drain of no-ops, 1 worker | Celery, 600/s | 0.50 | 1.67 |" in shown
    assert "- a note" in shown


def test_naps_count_as_the_better_of_threads_and_coroutines() -> None:
    result = _result("saq", nap_1_async=10.0, nap_1_sync=20.0)
    assert result.figure(MEASURES["naps_1"]) == 20.0
    assert result.figure(MEASURES["naps_10"]) is None


def test_a_figure_is_the_median_of_the_rounds() -> None:
    rounds = [{"drain_1": 1.0}, {"drain_1": 50.0}, {"drain_1": 3.0}]
    assert Result(library="rq", kind="durable", rounds=rounds).median("drain_1") == 3.0


def test_losses_are_shown() -> None:
    result = _result("dramatiq", drain_1=1.0)
    result.lost, result.doubled, result.killed = 11, 22, Killed(jobs=60, missing=33, doubled=44)
    shown = io.StringIO()
    print_library(_report(result), Console(file=shown, width=300))
    assert [int(word) for word in shown.getvalue().split() if word in {"11", "22", "33", "44"}] == [11, 22, 33, 44]


def test_every_bar_names_what_is_measured() -> None:
    assert {bar.measure for bar in BARS} <= set(MEASURES)
    assert {bar.ours for bar in BARS} | {each.ours for each in CEILINGS} <= set(LIBRARIES)


def test_the_command_knows_every_library() -> None:
    assert set(get_args(LibraryName)) == set(LIBRARIES)


def test_what_is_durable_as_it_comes_takes_part_once() -> None:
    named = [entry.name for entry in entries(["penstock", "celery", "huey"], ["durable", "defaults"])]
    assert named == ["penstock-durable", "celery-durable", "celery-defaults", "huey-defaults"]


def test_the_peers_are_pinned() -> None:
    assert all("==" in each for each in peer_packages().requirements)
    assert "github.com/riverqueue/river v" in river_program().files["go.mod"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["penstock", "penstock-embedded", "penstock-postgres"])
async def test_penstock_is_measured_and_nothing_is_lost_or_doubled(name: str) -> None:
    report = await run_library([name], ["durable"], TINY, Narrator(Console(file=io.StringIO())))
    assert report.notes == []
    [result] = report.results
    assert all(result.figure(measure) for measure in MEASURES.values())
    assert (result.lost, result.doubled) == (0, 0)
    assert result.killed is not None
    assert LIBRARIES[name].title in draw(report)
