"""noisy-neighbour: group ids keep a quiet tenant's wait short beside a loud one."""

from __future__ import annotations

import pytest

from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.report.pictures import bars
from penstock.lab.report.scene import scenes
from penstock.lab.stage import Entries
from tests.lab.scenarios.judging import BOTH, check_of, not_held, run_of, witness_of

SABOTAGE = "tests.lab.scenarios.wire_sabotage"


@pytest.mark.slow
def test_the_witness_is_a_message_that_waited_behind_the_backlog(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "noisy-neighbour", count=30, quiet_count=3)
    assert run.outcome == "holds", not_held(run.protected)
    send, receive = witness_of(run.broken, "quiet-wait")
    assert (send.f, send.tenant, send.phase) == ("send", "quiet", "shared")
    assert (receive.f, receive.message) == ("receive", send.message)
    assert receive.t_ms - send.t_ms > 600
    words = [bars.tenant_waits(scene, thumb=False).strips[0].alt for scene in scenes(run)]
    assert all("the limit of quiet is 600 ms" in alt for alt in words)


@pytest.mark.slow
def test_a_producer_without_groups_is_caught() -> None:
    entries = Entries(producer=f"{SABOTAGE}:sends_without_groups")
    with Laboratory(LabSettings(), entries=entries, modules=[SABOTAGE]) as laboratory:
        run = run_of(laboratory, "noisy-neighbour", BOTH[:1], count=30, quiet_count=3)
    assert run.outcome == "fails"
    assert check_of(run.protected, "quiet-wait").verdict == "failed"
