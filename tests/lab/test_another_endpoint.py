"""Scenarios in real time on an SQS that is not ours: moto's server, as on any endpoint of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from penstock.lab.archive import Archive
from penstock.lab.knobs import turned
from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.scenarios import NAMES, scenario
from penstock.lab.stage import Stage
from penstock.server.config import ServerConfig
from penstock.testing import serve
from tests.lab.playing import play
from tests.support.campaigns import GATHERING_EVIDENCE, campaign

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 if GATHERING_EVIDENCE else 60)]

SMALL: dict[str, dict[str, str]] = {
    "happy": {"count": "2"},
    "business-idempotency": {"count": "2"},
    "crash": {"visibility-timeout": "2"},
    "duplicates": {"count": "1", "visibility-timeout": "1", "slow-seconds": "2"},
    "poison": {"count": "3", "poison-count": "1", "visibility-timeout": "1"},
    "partial-batch": {"count": "10", "visibility-timeout": "2"},
    "side-effects": {"count": "1", "visibility-timeout": "2"},
}
"""Knobs with which a scenario takes seconds; the others run with their own."""
OFTEN = ("happy", "crash", "poison")
"""Scenarios that run every time. `make evidence` runs all."""


def queues(url: str) -> list[str]:
    sqs = boto3.client(
        "sqs", endpoint_url=url, region_name="us-west-1", aws_access_key_id="lab", aws_secret_access_key="lab"
    )
    try:
        return list(sqs.list_queues().get("QueueUrls", []))
    finally:
        sqs.close()


@campaign
@pytest.mark.parametrize("name", NAMES if GATHERING_EVIDENCE else OFTEN)
def test_a_scenario_runs_on_another_endpoint(
    name: str, dynamodb_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    played = scenario(name)
    with Laboratory(LabSettings(endpoint=dynamodb_url)) as laboratory:
        run = laboratory.run(played, turned(played.knobs, SMALL.get(name, {}), {}))
    failed = [f"{check.rule}: {check.sentence}" for check in run.protected.checks if check.verdict != "held"]
    differs = run.not_observed or run.difference
    record_property("evidence", f"{name} on moto: {run.outcome}. {'; '.join(failed)} {differs}".strip())
    if run.outcome == "fails":
        assert differs, f"it fails, and the report does not say what the endpoint does differently: {failed}"
    report = Archive(tmp_path).keep(run).read_text(encoding="utf-8")
    assert dynamodb_url in report
    assert not differs or "What this endpoint does differently" in report
    assert queues(dynamodb_url) == []
    if name in OFTEN:
        assert run.outcome == "holds", failed


def test_a_server_that_refuses_names_for_a_minute_can_be_used_again_at_once() -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=2)
        assert stage.counts().visible == 2

    with serve(ServerConfig(port=0, store="memory:", clock="system", name_reuse_s=60)) as plain:
        for _ in range(2):
            with Laboratory(LabSettings(endpoint=plain.url)) as laboratory:
                for _ in range(2):
                    left = play(laboratory, do).left
                    assert left is not None
                    assert left.count == 2
        assert queues(plain.url) == []
