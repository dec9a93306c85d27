"""Every scenario, on both stores: the protected variant holds, and the broken one fails where it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.lab.archive import Archive
from penstock.lab.endpoints import client
from penstock.lab.history import Event
from penstock.lab.knobs import turned
from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.recording import read_history
from penstock.lab.run import Run
from penstock.lab.scenarios import NAMES, scenario
from penstock.lab.stage import Entries, ScenarioFailed, Stage
from tests.lab.playing import play
from tests.support.campaigns import GATHERING_EVIDENCE

SMALLER = {
    "backlog-drain": {"count": "50", "outage": "8", "stale_after": "7", "visibility_timeout": "1"},
    "backpressure": {"iterations": "15"},
    "purge-timing": {"iterations": "1", "danger_count": "2"},
}
"""Knobs of scenarios that take long, for runs that are no evidence."""


def run_of(laboratory: Laboratory, name: str, **flags: str) -> Run:
    played = scenario(name)
    given = {flag.replace("_", "-"): value for flag, value in flags.items()}
    return laboratory.run(played, turned(played.knobs, given, {}))


def failures(run: Run) -> list[str]:
    return [
        f"{check.name}: {check.verdict}, {check.sentence}" for check in run.protected.checks if check.verdict != "held"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_rule_holds_and_breaks_as_it_must(laboratory: Laboratory, name: str) -> None:
    run = run_of(laboratory, name, **({} if GATHERING_EVIDENCE else SMALLER.get(name, {})))
    assert run.outcome in {"holds", "not observed"}, failures(run)
    if run.outcome == "holds":
        assert run.broke_as_it_must


@pytest.mark.parametrize("name", NAMES)
def test_the_words_fit(name: str) -> None:
    found = scenario(name)
    assert found.rule.endswith(".")
    assert len(found.short) <= 34
    assert not found.short.endswith(".")
    assert found.story
    assert found.guide
    assert found.try_command.partition("penstock lab run ")[2].split()[0] == name
    assert len({knob.name for knob in found.knobs}) == len(found.knobs)
    for knob in found.knobs:
        assert knob.least <= knob.default <= knob.most


SABOTAGES = [
    ("happy", "works_on_nothing", "effects-once"),
    ("crash", "acknowledges_on_receipt", "redelivered"),
    ("duplicates", "writes_without_condition", "effects-once"),
    ("business-idempotency", "writes_without_condition", "one-call-per-order"),
    ("side-effects", "writes_without_condition", "effects-once"),
    ("poison", "swallows_the_good", "effects-once"),
    ("partial-batch", "calls_twice", "effects-once"),
]
"""Promises that were broken from outside in a lab like this one, whose assertions did not notice."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sabotage", "check"), SABOTAGES)
def test_a_consumer_that_breaks_its_promise_is_caught(name: str, sabotage: str, check: str) -> None:
    entries = Entries(consumer=f"tests.lab.sabotage:{sabotage}")
    with Laboratory(LabSettings(), entries=entries, modules=["tests.lab.sabotage"]) as laboratory:
        played = scenario(name)
        run = laboratory.run(played, turned(played.knobs, {}, {}), variants=["protected"])
    assert run.outcome == "fails"
    found = run.protected.check(check)
    assert found is not None
    assert found.verdict == "failed"
    assert found.witness


def test_the_same_seed_gives_the_same_run(sqlite_laboratory: Laboratory) -> None:
    first, second = (run_of(sqlite_laboratory, "duplicates") for _ in range(2))
    for one, other in zip(first.variants, second.variants, strict=True):
        assert [known(event) for event in one.history.events] == [known(event) for event in other.history.events]


def known(event: Event) -> Event:
    """Leave out what the queue makes up, and the machine's own time."""
    return msgspec.structs.replace(event, message_id=None, receipt=None, mono_ns=0)


def test_another_seed_gives_another_run(sqlite_laboratory: Laboratory) -> None:
    with Laboratory(LabSettings(seed=8)) as other:
        one, two = run_of(sqlite_laboratory, "happy"), run_of(other, "happy")
    assert [event.t_ms for event in one.protected.history.events] != [
        event.t_ms for event in two.protected.history.events
    ]


def test_a_lease_that_outlasts_the_work_leaves_nothing_to_protect(sqlite_laboratory: Laboratory) -> None:
    run = run_of(sqlite_laboratory, "duplicates", visibility_timeout="4", count="2")
    assert run.outcome != "holds"
    again = run.protected.check("received-again")
    assert again is not None
    assert again.verdict != "held"


def test_a_message_is_back_when_its_lease_ends_to_the_millisecond(laboratory: Laboratory) -> None:
    run = run_of(laboratory, "crash", visibility_timeout="7")
    first, second = (event for event in run.protected.history.events if event.f == "receive")
    assert second.t_ms - first.t_ms == 7_000


def test_a_run_leaves_a_report_its_histories_and_an_index(sqlite_laboratory: Laboratory, tmp_path: Path) -> None:
    run = run_of(sqlite_laboratory, "happy")
    archive = Archive(tmp_path / "lab")
    report = archive.keep(run)
    assert report == tmp_path / "lab" / "happy-7.html"
    assert "<svg" in report.read_text(encoding="utf-8")
    for variant in run.variants:
        kept = read_history(tmp_path / "lab" / f"happy-7.{variant.name}.jsonl")
        assert kept.events == variant.history.events
    assert "happy-7.html" in (tmp_path / "lab" / "index.html").read_text(encoding="utf-8")
    assert archive.summaries()["happy"].outcome == "holds"


def test_nothing_of_a_run_is_left(sqlite_laboratory: Laboratory) -> None:

    run_of(sqlite_laboratory, "happy")
    sqs = client("sqs", endpoint=sqlite_laboratory.endpoint, region="us-west-1")
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="sqs-demo-happy")
    sqs.close()


@pytest.mark.slow
def test_the_tables_may_be_in_dynamodb(dynamodb: Any, dynamodb_url: str) -> None:
    with Laboratory(LabSettings(tables=f"dynamodb:{dynamodb_url}")) as laboratory:
        run = run_of(laboratory, "duplicates", count="2")
        assert dynamodb.list_tables()["TableNames"] == []
    assert run.outcome == "holds"
    assert run.broke_as_it_must


def test_a_process_that_fails_stops_the_scenario_and_is_named(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.wait(stage.consumer("A", QUEUE_URL=f"{stage.environment.queue_url}-missing"))

    with pytest.raises(ScenarioFailed, match=r"A ended with 70:(?s:.*)NonExistentQueue"):
        play(sqlite_laboratory, do)
    assert run_of(sqlite_laboratory, "happy", count="1").outcome == "holds"


@pytest.mark.slow
def test_a_store_that_is_kept_can_be_used_again(tmp_path: Path) -> None:
    """The runs before moved the clock ahead, so the queues of that time were deleted in the future."""
    for _ in range(2):
        with Laboratory(LabSettings(store=f"sqlite:{tmp_path / 'kept.db'}")) as laboratory:
            assert run_of(laboratory, "poison").outcome == "holds"
