"""backpressure: consumers follow the depth, and a consumer that loses messages is caught."""

from __future__ import annotations

import pytest

from penstock.lab.laboratory import Laboratory
from tests.lab.scenarios.judging import check_of, not_held, run_of, sabotaged, witness_of


@pytest.mark.slow
def test_the_depth_passes_its_bound_with_one_consumer_alone(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "backpressure", iterations=16)
    assert run.outcome == "holds", not_held(run.protected)
    (over,) = witness_of(run.broken, "depth-bounded")
    assert (over.depth or 0) > 40
    assert over.consumers == 1
    start, peak, end = witness_of(run.protected, "consumers-down")
    assert start.consumers == end.consumers == 1
    assert (peak.consumers or 0) > 2


@pytest.mark.slow
def test_a_load_that_one_consumer_can_do_puts_nothing_to_the_test(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "backpressure", ["protected"], rate=1, iterations=6)
    assert run.outcome != "holds"
    assert check_of(run.protected, "equilibrium").verdict == "unknown"


@pytest.mark.slow
def test_a_consumer_that_loses_half_of_the_messages_is_caught() -> None:
    run = sabotaged("backpressure", consumer="loses_half", iterations=8)
    assert run.outcome == "fails"
    lost = check_of(run.protected, "nothing-lost")
    assert lost.verdict == "failed"
    assert [event.f for event in witness_of(run.protected, "nothing-lost")] == ["send", "delete"]
