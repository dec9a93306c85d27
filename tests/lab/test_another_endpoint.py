"""Scenarios in real time on an SQS that is not ours: moto's server, as on any endpoint of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from penstock.domain.policy import parse_user_policy
from penstock.lab.archive import Archive
from penstock.lab.knobs import turned
from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.scenarios import NAMES, scenario
from penstock.lab.stage import Stage
from penstock.server.access import AccessKey
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


@pytest.mark.parametrize("profile", ["", "ada"])
def test_a_server_with_keys_is_used_with_the_users_own(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=2)
        stage.wait(stage.consumer("A", IDLE_TIMEOUT_SECONDS=0.1, WAIT_TIME_SECONDS=0))
        assert stage.counts().visible == 0

    everything = parse_user_policy({"Statement": {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}})
    key = AccessKey(
        id="AKIAADA", secret="a-secret-of-some-length", account="000000000000", user="ada", policy=everything
    )
    if profile:
        keys = f"aws_access_key_id = {key.id}\naws_secret_access_key = {key.secret}\n"
        (tmp_path / "credentials").write_text(f"[ada]\n{keys}")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER" if profile else key.id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key.secret)
    with (
        serve(ServerConfig(port=0, store="memory:", clock="system", keys=(key,))) as guarded,
        Laboratory(LabSettings(endpoint=guarded.url, profile=profile)) as laboratory,
    ):
        assert len(play(laboratory, do).of("effect", "ok")) == 2
