"""dlq-redrive: dead letters are moved by a task, after the fix, and what never died is not mistaken for them."""

from __future__ import annotations

import pytest

from penstock.lab.laboratory import Laboratory
from tests.lab.scenarios.judging import check_of, not_held, run_of, sabotaged, witness_of


def test_messages_that_are_moved_before_the_fix_die_again(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "dlq-redrive")
    assert run.outcome == "holds", not_held(run.protected)
    assert [event.f for event in witness_of(run.protected, "moved-back")] == ["dead", "move"]
    move, receive, dead = witness_of(run.broken, "no-dead-letters")
    assert (move.f, receive.f, dead.f) == ("move", "receive", "dead")
    assert move.message == receive.message == dead.message
    assert check_of(run.broken, "effects-once").verdict == "failed"
    fix = next(event for event in run.protected.history.events if event.f == "fix")
    assert all(event.i > fix.i for event in run.protected.history.events if event.f == "move")


@pytest.mark.slow
def test_more_dead_letters_than_one_call_returns_are_all_moved(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "dlq-redrive", ["protected"], count=25)
    assert run.outcome == "holds", not_held(run.protected)
    assert check_of(run.protected, "moved-back").figure == "25 of 25"


@pytest.mark.slow
def test_a_consumer_that_swallows_its_messages_is_caught() -> None:
    run = sabotaged("dlq-redrive", consumer="works_on_nothing")
    assert run.outcome == "fails"
    assert check_of(run.protected, "moved-back").verdict == "unknown"
    assert check_of(run.protected, "nothing-lost").verdict == "failed"
