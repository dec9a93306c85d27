"""Runs scenarios with knobs turned, and picks what tests look at."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.lab.checkers.evidence import Check
from penstock.lab.history import Event
from penstock.lab.knobs import turned
from penstock.lab.laboratory import Laboratory, LabSettings, VariantName
from penstock.lab.run import Run, Variant
from penstock.lab.scenario import Scenario
from penstock.lab.scenarios import scenario
from penstock.lab.stage import Entries

BOTH: tuple[VariantName, ...] = ("protected", "broken")


def run_of(
    laboratory: Laboratory, played: Scenario | str, variants: Sequence[VariantName] = BOTH, **flags: object
) -> Run:
    found = scenario(played) if isinstance(played, str) else played
    given = {flag.replace("_", "-"): str(value) for flag, value in flags.items()}
    return laboratory.run(found, turned(found.knobs, given, {}), variants=variants)


def sabotaged(name: str, *, consumer: str = "", producer: str = "", **flags: object) -> Run:
    """Run the protected variant with a consumer or a producer of `tests.lab.sabotage`."""
    usual = Entries()
    entries = Entries(
        consumer=f"tests.lab.sabotage:{consumer}" if consumer else usual.consumer,
        producer=f"tests.lab.sabotage:{producer}" if producer else usual.producer,
    )
    with Laboratory(LabSettings(), entries=entries, modules=["tests.lab.sabotage"]) as laboratory:
        return run_of(laboratory, name, BOTH if producer else BOTH[:1], **flags)


def check_of(variant: Variant | None, name: str) -> Check:
    assert variant is not None
    found = variant.check(name)
    assert found is not None
    return found


def witness_of(variant: Variant | None, name: str) -> list[Event]:
    """Return the events that prove what a check found."""
    assert variant is not None
    return [variant.history.events[i - 1] for i in check_of(variant, name).witness]


def not_held(variant: Variant) -> dict[str, str]:
    return {check.name: check.sentence for check in variant.checks if check.verdict != "held"}
