"""fifo-order: order within a group, shared work, and what a standard queue does instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.lab.laboratory import Laboratory, LabSettings
from tests.lab.scenarios.judging import check_of, not_held, run_of, witness_of
from tests.support.campaigns import campaign, trials


@pytest.mark.slow
def test_the_witness_is_a_message_that_overtook_one_of_its_group(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "fifo-order")
    assert run.outcome == "holds", not_held(run.protected)
    first, second = witness_of(run.broken, "fifo-order")
    assert first.f == second.f == "effect"
    assert first.group == second.group
    assert (first.sequence or 0) > (second.sequence or 0)
    assert first.t_ms < second.t_ms
    one, other = witness_of(run.broken, "no-overlap")
    assert one.group == other.group
    assert one.process != other.process


def test_one_consumer_alone_shows_nothing_and_fails(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "fifo-order", ["protected"], consumer_count=1)
    assert run.outcome == "fails"
    assert list(not_held(run.protected)) == ["work-shared"]
    assert check_of(run.protected, "work-shared").sentence == "A did all of 10 effects alone"


def test_groups_go_on_beside_each_other(sqlite_laboratory: Laboratory) -> None:
    one, five = (run_of(sqlite_laboratory, "fifo-order", ["protected"], groups=groups) for groups in (1, 5))
    assert one.outcome == five.outcome == "holds"
    ends = [run.protected.history.events[-1].t_ms for run in (one, five)]
    assert ends[1] < ends[0]


@campaign
@pytest.mark.slow
def test_a_standard_queue_breaks_the_order_for_every_seed(record_property: Callable[[str, object], None]) -> None:
    seeds = range(1, trials(20) + 1)
    for seed in seeds:
        with Laboratory(LabSettings(seed=seed)) as laboratory:
            run = run_of(laboratory, "fifo-order")
        assert run.outcome == "holds", (seed, not_held(run.protected))
    record_property("evidence", f"fifo-order held and broke as it must for {len(seeds)} seeds")
