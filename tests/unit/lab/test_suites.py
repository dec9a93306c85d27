"""The nineteen scenarios: each holds when it is protected, and breaks in its named check when it is not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from penstock.lab.checkers.evidence import Check, Evidence, Left
from penstock.lab.checkers.suites import SUITES
from penstock.lab.history import Event
from penstock.lab.run import PICTURES, Run
from tests.support.lab.runs import WRITTEN, knobs_of, run_of, script_of


def checks_of(scenario: str, evidence: Evidence) -> dict[str, Check]:
    return {check.name: check for check in SUITES[scenario].check(evidence, knobs_of(scenario))}


def test_every_scenario_has_checks_a_picture_and_a_history() -> None:
    assert list(SUITES) == list(PICTURES) == list(WRITTEN)
    assert len(SUITES) == 19


@pytest.mark.parametrize("scenario", SUITES)
def test_the_protected_variant_holds_in_every_check(scenario: str) -> None:
    checks = checks_of(scenario, script_of(scenario).evidence)
    assert {name: check.sentence for name, check in checks.items() if check.verdict != "held"} == {}


@pytest.mark.parametrize("scenario", SUITES)
def test_the_broken_variant_fails_in_its_named_check_with_a_witness(scenario: str) -> None:
    evidence = script_of(scenario, broken=True).evidence
    check = checks_of(scenario, evidence)[SUITES[scenario].breaks]
    assert check.verdict == "failed"
    assert check.count > 0
    assert check.witness == tuple(sorted(set(check.witness)))
    assert 1 <= check.witness[0] <= check.witness[-1] <= len(evidence.events)


@pytest.mark.parametrize("scenario", SUITES)
def test_without_events_nothing_holds(scenario: str) -> None:
    """Missing evidence is unknown: of an empty run, only the queues that somebody saw to be empty are certain."""
    checks = checks_of(scenario, Evidence(events=()))
    assert {check.verdict for check in checks.values()} == {"unknown"}
    seen = checks_of(scenario, Evidence(events=(), left=Left(count=0), dead=Left(count=0), ledger=(), state={}))
    held = {name for name, check in seen.items() if check.verdict == "held"}
    assert held <= {"drained", "no-dead-letters"}
    assert "failed" not in {check.verdict for check in seen.values()}


def changed(evidence: Evidence, change: Callable[[Event], Event | None]) -> Evidence:
    """Return the evidence with its events changed or left out; the ledger follows the effects."""
    events = [new for event in evidence.events if (new := change(event)) is not None]
    numbered = tuple(msgspec.structs.replace(event, i=place) for place, event in enumerate(events, 1))
    kept = {(event.message, event.process) for event in numbered if event.f == "effect" and event.type == "ok"}
    ledger = tuple(call for call in evidence.ledger or () if (call.message, call.process) in kept)
    return msgspec.structs.replace(evidence, events=numbered, ledger=ledger)


def first_half(evidence: Evidence) -> set[str]:
    sent = list(evidence.sent())
    return set(sent[: len(sent) // 2])


def test_happy_catches_deletes_without_the_work() -> None:
    seen = changed(script_of("happy").evidence, lambda event: None if event.f == "effect" else event)
    checks = checks_of("happy", seen)
    assert checks["effects-once"].verdict == "failed"
    assert checks["nothing-lost"].verdict == "failed"
    assert checks["deleted-after-effect"].verdict == "failed"


def test_crash_catches_an_acknowledgement_on_receipt_even_without_a_loss() -> None:
    script = script_of("crash")
    script.at(850, "A", "delete", message="m-1", receipt="m-1.1.A")
    checks = checks_of("crash", script.evidence)
    assert checks["deleted-after-effect"].verdict == "failed"


@pytest.mark.parametrize("scenario", ["duplicates", "business-idempotency", "side-effects"])
def test_a_call_without_the_conditional_write_is_caught(scenario: str) -> None:
    evidence = script_of(scenario).evidence
    refused = evidence.of("effect", "fail")
    wrong = msgspec.structs.replace(refused[0], type="ok")
    events = tuple(wrong if event.i == wrong.i else event for event in evidence.events)
    assert evidence.ledger is not None
    call = msgspec.structs.replace(
        evidence.ledger[0], message=wrong.message or "", key=wrong.key, process=wrong.process
    )
    seen = msgspec.structs.replace(evidence, events=events, ledger=(*evidence.ledger, call))
    assert checks_of(scenario, seen)[SUITES[scenario].breaks].verdict == "failed"


def test_poison_catches_good_ones_that_were_swallowed() -> None:
    evidence = script_of("poison").evidence
    good = {message for message, event in evidence.sent().items() if not event.poison}
    seen = changed(evidence, lambda event: None if event.f == "effect" and event.message in good else event)
    checks = checks_of("poison", seen)
    assert checks["effects-once"].verdict == "failed"
    assert checks["nothing-lost"].verdict == "failed"


def test_partial_batch_catches_good_ones_done_twice() -> None:
    evidence = script_of("partial-batch").evidence
    assert evidence.ledger is not None
    seen = msgspec.structs.replace(evidence, ledger=evidence.ledger * 2)
    assert checks_of("partial-batch", seen)["effects-once"].verdict == "failed"


def test_backpressure_catches_messages_that_are_lost() -> None:
    evidence = script_of("backpressure").evidence
    lost = first_half(evidence)
    seen = changed(evidence, lambda event: None if event.message in lost and event.f != "send" else event)
    assert checks_of("backpressure", seen)["nothing-lost"].verdict == "failed"


def test_purge_timing_catches_a_purge_that_never_happened() -> None:
    script = script_of("purge-timing")
    for n in range(10):
        script.receive(900 + n, "A", f"old-{n + 1}")
    assert checks_of("purge-timing", script.evidence)["purged"].verdict == "failed"
    seen = changed(script.evidence, lambda event: None if event.f == "purge" else event)
    assert checks_of("purge-timing", seen)["purged"].verdict == "unknown"


def test_fifo_order_fails_when_one_consumer_did_all_the_work() -> None:
    evidence = script_of("fifo-order").evidence
    seen = changed(evidence, lambda event: event if event.f == "send" else msgspec.structs.replace(event, process="c1"))
    checks = checks_of("fifo-order", seen)
    assert checks["fifo-order"].verdict == "held"
    assert checks["work-shared"].verdict == "failed"
    assert checks["work-shared"].sentence == "c1 did all of 10 effects alone"


def outcome(run: Run, **changes: object) -> str:
    return msgspec.structs.replace(run, **changes).outcome


def test_a_run_holds_only_if_the_protected_one_does_and_the_broken_one_breaks() -> None:
    run = run_of("duplicates")
    broken = run.broken
    assert broken is not None
    assert run.outcome == "holds"
    assert outcome(run, protected=msgspec.structs.replace(broken, name="protected")) == "fails"
    # A broken variant that does not break says that the check is blind.
    assert outcome(run, broken=msgspec.structs.replace(run.protected, name="broken")) == "fails"
    assert outcome(run, breaks="no-dead-letters") == "fails"
    assert outcome(run, broken=None) == "holds"
    assert outcome(run, protected=msgspec.structs.replace(run.protected, checks=())) == "unknown"
    assert outcome(run, not_observed="This endpoint cannot show it.") == "not observed"
    failing = msgspec.structs.replace(broken, name="protected")
    assert outcome(run, protected=failing, not_observed="This endpoint cannot show it.") == "fails"


def test_a_broken_variant_alone_breaks_or_fails_to() -> None:
    run = run_of("duplicates")
    assert outcome(run, protected=run.broken, broken=None) == "breaks"
    unbroken = msgspec.structs.replace(run.protected, name="broken")
    assert outcome(run, protected=unbroken, broken=None) == "fails"
    assert outcome(run, protected=unbroken, broken=None, not_observed="It cannot show it.") == "not observed"
