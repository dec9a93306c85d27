"""purge-timing: what an endpoint with and one without a window of loss make of it."""

from __future__ import annotations

import pytest

from penstock.lab.laboratory import Laboratory
from penstock.lab.scenarios.purge_timing import PurgeTiming
from penstock.lab.stage import Stage
from tests.lab.scenarios.judging import check_of, not_held, run_of, sabotaged, witness_of


@pytest.mark.slow
def test_a_purge_takes_nothing_that_is_sent_after_it(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "purge-timing", iterations=1)
    assert run.outcome == "not observed"
    assert not_held(run.protected) == {}
    assert (run.not_observed or "").startswith("All 40 messages that were sent within 60 s after a purge are still")
    assert check_of(run.protected, "purged").figure == "10 of 10"
    first, second = witness_of(run.protected, "second-purge-refused")
    assert second.type == "fail"
    assert second.t_ms - first.t_ms == 2_000


@pytest.mark.slow
def test_a_window_of_loss_breaks_only_what_is_sent_at_once() -> None:
    run = sabotaged("purge-timing", producer="forgets_for_a_minute", iterations=1)
    assert run.outcome == "holds", not_held(run.protected)
    assert run.not_observed is None
    purge, sent = witness_of(run.broken, "survives")
    assert purge.f == "purge"
    assert sent.f == "send"
    assert sent.t_ms - purge.t_ms < 1_000
    assert check_of(run.broken, "survives").figure == "0 of 10"


class NeverPurging(PurgeTiming):
    """Says that it purges."""

    def purge(self, stage: Stage) -> bool:
        stage.record("ok", "purge")
        return True


def test_a_purge_that_never_happened_is_caught(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, NeverPurging(), ["protected"], iterations=1)
    assert run.outcome == "fails"
    assert check_of(run.protected, "purged").verdict == "failed"
    assert [event.f for event in witness_of(run.protected, "purged")] == ["send", "purge", "receive"]
    # Amazon SQS would have refused the second one.
    assert check_of(run.protected, "second-purge-refused").verdict == "failed"
    assert run.difference.startswith("This endpoint accepts a second purge within 60 s")
