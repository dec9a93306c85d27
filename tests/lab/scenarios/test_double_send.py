"""double-send: tries of one call are stored once if they can be recognised, and each for itself if not."""

from __future__ import annotations

import pytest

from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.scenarios import double_send
from tests.lab.scenarios.judging import check_of, not_held, run_of, witness_of

SABOTAGE = "tests.lab.scenarios.wire_sabotage"


@pytest.mark.parametrize("fifo", [0, 1])
def test_a_call_whose_answers_are_cut_is_stored_once(laboratory: Laboratory, fifo: int) -> None:
    run = run_of(laboratory, "double-send", fifo=fifo, cuts=2, count=2)
    assert run.outcome == "holds", not_held(run.protected)
    sends = [event for event in run.protected.history.events if event.f == "send"]
    assert [(event.call, event.type, event.attempt) for event in sends] == [
        (call, outcome, attempt)
        for call in ("call 1", "call 2")
        for outcome, attempt in (("info", 1), ("info", 2), ("ok", 3))
    ]
    assert check_of(run.broken, "stored-once").figure == "6 stored"


def test_the_witness_is_a_call_with_two_messages(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "double-send", count=1)
    send, one, other = witness_of(run.broken, "stored-once")
    assert send.fault == "connection cut"
    assert (one.f, other.f) == ("send", "receive")
    assert one.call == other.call == send.call
    assert one.message_id != other.message_id
    assert one.body_id == other.body_id == send.body_id


@pytest.mark.slow
def test_a_sender_that_makes_up_ids_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(double_send, "ENTRY", f"{SABOTAGE}:sends_with_fresh_ids")
    with Laboratory(LabSettings(), modules=[SABOTAGE]) as laboratory:
        run = run_of(laboratory, "double-send", ["protected"])
    assert run.outcome == "fails"
    assert check_of(run.protected, "stored-once").verdict == "failed"
