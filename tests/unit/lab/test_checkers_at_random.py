"""Random histories: a clean one holds, one with a single violation is caught, and the witness alone proves it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lab.checkers import delivery, effects, leasing, order
from penstock.lab.checkers.evidence import Check, Evidence, Left
from penstock.lab.history import Event
from tests.support.lab.script import Script

LEASE_MS = 100


class Life(msgspec.Struct, frozen=True):
    """What becomes of one message: how often its consumers crash before one of them does the work."""

    sent_ms: int
    waits_ms: int
    crashes: int
    works_ms: int


lives = st.lists(
    st.builds(
        Life,
        st.integers(0, 500),
        st.integers(0, 300),
        st.integers(0, 2),
        st.integers(0, LEASE_MS - 2),
    ),
    min_size=2,
    max_size=8,
)


def clean(many: list[Life]) -> Script:
    """Write a history in which everything goes as it must, crashes included. A group is held by one at a time."""
    script = Script("crash", lease_ms=LEASE_MS)
    free_ms = 0
    for n, life in enumerate(many):
        message = f"m{n}"
        script.send(life.sent_ms, message, sequence=n)
        t_ms = max(life.sent_ms + life.waits_ms, free_ms)
        for crash in range(life.crashes):
            who = f"c{(n + crash) % 3}"
            script.receive(t_ms, who, message, crash + 1, group="g", sequence=n)
            script.at(t_ms + 1, who, "crash", "info", message=message)
            t_ms += LEASE_MS
        who = f"c{(n + life.crashes) % 3}"
        script.receive(t_ms, who, message, life.crashes + 1, group="g", sequence=n)
        script.at(t_ms + life.works_ms, who, "effect", message=message, group="g", sequence=n)
        script.at(
            t_ms + life.works_ms + 1, who, "delete", message=message, receipt=f"{message}.{life.crashes + 1}.{who}"
        )
        free_ms = t_ms + life.works_ms + 2
    return script


def judge(evidence: Evidence) -> dict[str, Check]:
    checks = [
        delivery.nothing_lost(evidence),
        delivery.nothing_unexpected(evidence),
        delivery.all_deleted(evidence),
        delivery.deleted_after_effect(evidence),
        effects.effects_once(evidence),
        leasing.redelivered(evidence),
        leasing.never_before(evidence, visibility_ms=LEASE_MS),
        leasing.leases_exclusive(evidence, visibility_ms=LEASE_MS),
        order.fifo_order(evidence),
        order.no_overlap(evidence, visibility_ms=LEASE_MS),
    ]
    return {check.name: check for check in checks}


@given(lives)
def test_a_clean_history_breaks_no_rule(many: list[Life]) -> None:
    checks = judge(clean(many).evidence)
    assert {name: check for name, check in checks.items() if check.verdict == "failed"} == {}
    crashed = any(life.crashes for life in many)
    for name in ("redelivered", "never-before"):
        assert checks[name].verdict == ("held" if crashed else "unknown")
    assert all(check.verdict == "held" for name, check in checks.items() if name not in {"redelivered", "never-before"})


def without(evidence: Evidence, drop: Callable[[Event], bool]) -> Evidence:
    events = [event for event in evidence.events if not drop(event)]
    numbered = tuple(msgspec.structs.replace(event, i=place) for place, event in enumerate(events, 1))
    effects_left = {event.message for event in numbered if event.f == "effect"}
    ledger = tuple(call for call in evidence.ledger or () if call.message in effects_left)
    return msgspec.structs.replace(evidence, events=numbered, ledger=ledger)


def second_effect(script: Script, message: str) -> Evidence:
    done = next(event for event in script.evidence.events if event.f == "effect" and event.message == message)
    script.at(done.t_ms + LEASE_MS, "thief", "effect", message=message, group="other", sequence=done.sequence)
    return script.evidence


def early_receive(script: Script, message: str) -> Evidence:
    got = next(event for event in script.evidence.events if event.f == "receive" and event.message == message)
    script.receive(got.t_ms, "thief", message, 9, group="g")
    return script.evidence


def stranger(script: Script, message: str) -> Evidence:
    script.receive(10_000, "c0", f"{message}-forged", group="other")
    return script.evidence


def swapped(script: Script, message: str) -> Evidence:
    """Give the message a sequence below all others, after they took effect."""
    script.at(20_000, "c0", "effect", message="late", group="g", sequence=-1)
    script.send(19_000, "late")
    script.at(20_001, "c0", "delete", message="late")
    return script.evidence


VIOLATIONS: dict[str, Callable[[Script, str], Evidence]] = {
    "effects-once": second_effect,
    "leases-exclusive": early_receive,
    "nothing-unexpected": stranger,
    "fifo-order": swapped,
    "nothing-lost": lambda script, message: without(
        script.evidence, lambda e: e.f == "effect" and e.message == message
    ),
    "all-deleted": lambda script, message: without(script.evidence, lambda e: e.f == "delete" and e.message == message),
}


@pytest.mark.parametrize("name", VIOLATIONS)
@settings(max_examples=40)
@given(many=lives, victim=st.integers(0, 7))
def test_one_violation_is_caught_and_its_witness_names_the_message(name: str, many: list[Life], victim: int) -> None:
    message = f"m{victim % len(many)}"
    evidence = VIOLATIONS[name](clean(many), message)
    check = judge(evidence)[name]
    assert check.verdict == "failed"
    about = {event.message for event in evidence.events if event.i in check.witness}
    expected = {"nothing-unexpected": f"{message}-forged", "fifo-order": "late"}.get(name, message)
    assert expected in about


@pytest.mark.parametrize("name", ["leases-exclusive", "nothing-unexpected", "fifo-order", "effects-once"])
@settings(max_examples=40)
@given(many=lives, victim=st.integers(0, 7))
def test_the_witness_alone_proves_the_violation_and_nothing_less_does(name: str, many: list[Life], victim: int) -> None:
    evidence = VIOLATIONS[name](clean(many), f"m{victim % len(many)}")
    witness = judge(evidence)[name].witness
    kept = tuple(event for event in evidence.events if event.i in witness)
    sends = tuple(event for event in evidence.events if event.f == "send")
    calls = tuple(call for call in evidence.ledger or () if any(call.message == event.message for event in kept))
    proof = Evidence(events=(*sends, *kept), ledger=calls, left=Left(count=0), dead=Left(count=0))
    assert judge(proof)[name].verdict == "failed"
    for left_out in kept if name in {"leases-exclusive", "fifo-order"} else ():
        less = tuple(event for event in kept if event.i != left_out.i)
        assert judge(msgspec.structs.replace(proof, events=(*sends, *less)))[name].verdict != "failed"
