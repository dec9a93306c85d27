"""Plays whatever a test wants on a laboratory, and returns what was seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from penstock.lab.checkers.evidence import Check, Evidence
from penstock.lab.checkers.suites import Knobs as Bounds
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knobs
from penstock.lab.laboratory import Laboratory
from penstock.lab.scenario import Difference, Scenario
from penstock.lab.stage import Stage


def play(laboratory: Laboratory, do: Callable[[Stage], None], queue: QueueSettings | None = None) -> Evidence:
    """Do this on a stage, without any check."""

    class Played(Scenario):
        name: ClassVar[str] = "happy"
        difference: ClassVar[Difference] = Difference(name="NONE", protected="", broken="", does="", words=("", ""))

        def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:
            return queue or QueueSettings()

        def play(self, stage: Stage) -> None:
            do(stage)

        @property
        def check(self) -> Callable[[Evidence, Bounds], list[Check]]:
            return lambda _seen, _bounds: []

    return laboratory.play(Played(), Knobs({}), "protected").evidence
