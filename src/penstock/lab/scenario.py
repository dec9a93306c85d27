"""What a scenario is: its rule, its knobs, what happens in it, and what was found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import msgspec

from penstock.lab.checkers import suites
from penstock.lab.checkers.evidence import number
from penstock.lab.environment import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.lab.checkers.evidence import Check, Evidence
    from penstock.lab.knobs import Knob, Knobs
    from penstock.lab.stage import Stage


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What the broken variant does without: a knob of the report, and its two settings."""

    name: str
    """As the report's table of knobs has it: CONDITIONAL_WRITE."""
    protected: str
    broken: str
    does: str
    words: tuple[str, str]
    """Both settings in a few words: `("conditional write on", "conditional write off")`."""


class Scenario(ABC):
    """A failure on purpose. A subclass says what it is about and plays it; it has no state.

    `play` runs once for the protected variant and once for the broken one: `stage.broken` says which.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    """What must be so, as a sentence: "At least two receives, exactly one call."."""
    short: ClassVar[str]
    """The same for `lab ls`, in at most 35 characters and without a full stop."""
    story: ClassVar[str]
    """What happened and why, in a sentence or two."""
    guide: ClassVar[str] = ""
    """What to do about it, for the report."""
    try_this: ClassVar[str] = ""
    """One knob to turn, as a sentence with its command in backticks."""
    try_command: ClassVar[str] = ""
    """That command."""
    difference: ClassVar[Difference]
    knobs: ClassVar[tuple[Knob, ...]] = ()
    slow: ClassVar[bool] = False
    """Whether it takes minutes on the system's clock."""

    def validate(self, knobs: Knobs) -> None:  # noqa: B027 - most scenarios have no such knobs
        """Raise `BadValue` for knobs that are right one by one and do not go together."""

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - a scenario may need either
        """Return how its queues are made."""
        return QueueSettings()

    @abstractmethod
    def play(self, stage: Stage) -> None:
        """Make it happen."""

    def bounds(self, knobs: Knobs) -> suites.Knobs:
        """Return what its checks need to know of the knobs."""
        return suites.Knobs(visibility_ms=self.queue(knobs, broken=False).visibility_s * 1_000)

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Return what was counted in one variant, as `5 sent`."""
        ledger = () if seen.ledger is None else seen.ledger
        receives = number(len(seen.of("receive", "ok")), "receive")
        return (f"{len(seen.sent()):,} sent", receives, number(len(ledger), "call"))

    def found(self, seen: Evidence) -> str:
        """Return what was found in the protected variant, in at most 35 characters."""
        return ", ".join(self.figures(seen)[1:])

    @property
    def suite(self) -> suites.Suite:
        """The checks that judge it."""
        return suites.SUITES[self.name]

    @property
    def check(self) -> Callable[[Evidence, suites.Knobs], list[Check]]:
        """What judges one variant of it."""
        return self.suite.check

    @property
    def breaks(self) -> str:
        """The check that the broken variant must fail."""
        return self.suite.breaks
