"""out-of-order: the highest version wins, and without a condition an old one does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.lab.laboratory import Laboratory, LabSettings
from tests.lab.scenarios.judging import check_of, not_held, run_of, witness_of
from tests.support.campaigns import campaign, trials


def test_an_old_version_comes_last_where_the_last_write_wins(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "out-of-order")
    assert run.outcome == "holds", not_held(run.protected)
    sent, last = witness_of(run.broken, "highest-wins")
    assert (sent.f, sent.version) == ("send", 10)
    assert (last.f, last.type) == ("apply", "ok")
    assert (last.version or 0) < 10
    before, after = witness_of(run.broken, "versions-rise")
    assert (before.version or 0) > (after.version or 0)


def test_without_a_reordering_the_verdict_is_unknown(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "out-of-order", ["protected"], consumer_count=1)
    assert run.outcome == "unknown"
    assert check_of(run.protected, "versions-rise").figure == "all in order"


@campaign
@pytest.mark.slow
def test_the_order_is_lost_for_every_seed(record_property: Callable[[str, object], None]) -> None:
    seeds = range(1, trials(20) + 1)
    for seed in seeds:
        with Laboratory(LabSettings(seed=seed)) as laboratory:
            run = run_of(laboratory, "out-of-order")
        assert run.outcome == "holds", (seed, not_held(run.protected))
    record_property("evidence", f"out-of-order held and broke as it must for {len(seeds)} seeds")
