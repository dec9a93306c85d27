"""retry-storm: backoff with jitter bounds the peak of retries."""

from __future__ import annotations

import pytest

from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.stage import Entries
from tests.lab.scenarios.judging import check_of, not_held, run_of, witness_of

SABOTAGE = "tests.lab.scenarios.wire_sabotage"


@pytest.mark.slow
def test_the_witness_is_one_retry_more_than_a_second_may_have(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "retry-storm", count=20, attempts_per_second=15)
    assert run.outcome == "holds", not_held(run.protected)
    retries = witness_of(run.broken, "peak-bounded")
    assert len(retries) == 16
    assert all(event.f == "receive" and (event.count or 0) > 1 for event in retries)
    assert retries[-1].t_ms - retries[0].t_ms < 1_000


@pytest.mark.slow
def test_a_consumer_that_retries_at_once_is_caught() -> None:
    entries = Entries(consumer=f"{SABOTAGE}:retries_at_once")
    with Laboratory(LabSettings(), entries=entries, modules=[SABOTAGE]) as laboratory:
        run = run_of(laboratory, "retry-storm", ["protected"], count=20, attempts_per_second=15)
    assert run.outcome == "fails"
    assert list(not_held(run.protected)) == ["peak-bounded"]
    assert check_of(run.protected, "peak-bounded").verdict == "failed"
