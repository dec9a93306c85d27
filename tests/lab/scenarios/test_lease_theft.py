"""lease-theft: late reports on messages and on jobs are refused, and counted where nothing fences them."""

from __future__ import annotations

import pytest

from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.scenarios import lease_theft
from tests.lab.scenarios.judging import check_of, not_held, run_of, witness_of

SABOTAGE = "tests.lab.scenarios.wire_sabotage"


@pytest.mark.slow
def test_late_reports_are_refused_while_another_holds_the_work(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "lease-theft")
    assert run.outcome == "holds", not_held(run.protected)
    events = run.protected.history.events
    refused = [event for event in events if event.f == "report" and event.type == "fail"]
    assert {(event.process, event.message) for event in refused} == {("A", "message-1"), ("C", "job-1")}
    for late in refused:
        last = [event for event in events if event.f == "receive" and event.message == late.message][-1]
        done = next(e for e in events if e.f == "report" and e.type == "ok" and e.message == late.message)
        assert last.process == done.process != late.process
        assert last.i < late.i < done.i
    mine, newer, late = witness_of(run.broken, "stale-report")
    assert mine.process == late.process != newer.process
    assert mine.message == newer.message == late.message
    assert check_of(run.broken, "effects-once").sentence == "4 calls for 2 messages"


def test_a_holder_that_wakes_in_time_shows_nothing(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "lease-theft", ["protected"], stall_seconds=0)
    assert run.outcome == "unknown"
    assert list(not_held(run.protected)) == ["stale-report"]


@pytest.mark.slow
def test_a_holder_that_commits_anyway_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_theft, "ENTRY", f"{SABOTAGE}:commits_anyway")
    with Laboratory(LabSettings(), modules=[SABOTAGE]) as laboratory:
        run = run_of(laboratory, "lease-theft", ["protected"])
    assert run.outcome == "fails"
    assert {"stale-report", "effects-once"} <= set(not_held(run.protected))
