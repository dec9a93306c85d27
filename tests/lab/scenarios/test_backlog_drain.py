"""backlog-drain: what is stale is left out, and what is received twice in the burst is done once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.lab.laboratory import Laboratory
from tests.lab.scenarios.judging import check_of, not_held, run_of, sabotaged, witness_of

SMALL: dict[str, Any] = {"count": 50, "outage": 8, "stale_after": 7, "processing_delay": 0.5, "visibility_timeout": 1}


@pytest.mark.slow
def test_a_stale_message_has_an_effect_only_without_the_check(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "backlog-drain", **SMALL)
    assert run.outcome == "holds", not_held(run.protected)
    sent, begun, effect = witness_of(run.broken, "stale-refused")
    assert (sent.f, begun.f, effect.f, effect.type) == ("send", "start", "effect", "ok")
    assert begun.t_ms - sent.t_ms > 7_000
    sent, begun, effect = witness_of(run.protected, "stale-refused")
    assert (effect.type, begun.t_ms - sent.t_ms > 7_000) == ("fail", True)
    assert "stale" in (effect.what or "")


@pytest.mark.slow
def test_a_consumer_that_does_everything_again_is_caught() -> None:
    run = sabotaged("backlog-drain", consumer="never_looks", **SMALL)
    assert run.outcome == "fails"
    assert check_of(run.protected, "effects-once").verdict == "failed"
    assert [event.f for event in witness_of(run.protected, "effects-once")].count("effect") == 2


@pytest.mark.slow
def test_an_outage_without_consequences_is_unknown(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "backlog-drain", ["protected"], count=24, outage=1, stale_after=60)
    assert run.outcome == "unknown"
    assert check_of(run.protected, "stale-refused").figure == "none stale"
