"""lost-response: a receive that is repeated under its id gets what the first try leased."""

from __future__ import annotations

import pytest

from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.scenarios import lost_response
from tests.lab.scenarios.judging import check_of, not_held, run_of, witness_of

SABOTAGE = "tests.lab.scenarios.wire_sabotage"


@pytest.mark.parametrize("fifo", [0, 1])
def test_a_repeat_gets_the_same_message_under_the_same_lease(laboratory: Laboratory, fifo: int) -> None:
    run = run_of(laboratory, "lost-response", fifo=fifo)
    assert run.outcome == "holds", not_held(run.protected)
    events = run.protected.history.events
    lost = [event for event in events if event.f == "receive" and event.type == "info"]
    received = [event for event in events if event.f == "receive" and event.type == "ok"]
    assert len(lost) == 3
    for cut in lost:
        again = next(event for event in received if event.call == cut.call)
        assert (again.message, again.count, again.receipt) == (cut.message, 1, cut.receipt)


def test_the_witness_is_a_message_that_lay_hidden_for_a_lease(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "lost-response", count=2, cuts=1, visibility_timeout=7)
    lost, late = witness_of(run.broken, "same-messages")
    assert lost.fault == "connection cut"
    assert late.message == lost.message
    assert late.count == 2
    assert late.t_ms - lost.t_ms >= 7_000
    assert check_of(run.broken, "none-idle").verdict == "failed"


@pytest.mark.slow
def test_a_consumer_that_asks_anew_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_response, "ENTRY", f"{SABOTAGE}:asks_anew")
    with Laboratory(LabSettings(), modules=[SABOTAGE]) as laboratory:
        run = run_of(laboratory, "lost-response", ["protected"])
    assert run.outcome == "fails"
    assert check_of(run.protected, "same-messages").verdict == "failed"
