"""A run of a scenario, both variants of it, as commands and reports see it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.lab.checkers.evidence import Check
from penstock.lab.history import History

Picture = Literal[
    "lanes",
    "crash-lane",
    "late-lanes",
    "joined-lanes",
    "receive-counts",
    "round-grid",
    "step-ladder",
    "signal-lanes",
    "sequence-points",
    "load-curves",
    "survival",
    "versions",
    "backlog-curves",
    "queue-flow",
    "send-wire",
    "receive-wire",
    "two-holders",
    "tenant-waits",
    "retry-rate",
]
Outcome = Literal["holds", "fails", "unknown", "not observed", "breaks"]
"""The last one is of a broken variant that runs alone, and breaks as it must."""

PICTURES: dict[str, Picture] = {
    "happy": "lanes",
    "crash": "crash-lane",
    "duplicates": "late-lanes",
    "business-idempotency": "joined-lanes",
    "poison": "receive-counts",
    "partial-batch": "round-grid",
    "side-effects": "step-ladder",
    "graceful-shutdown": "signal-lanes",
    "fifo-order": "sequence-points",
    "backpressure": "load-curves",
    "purge-timing": "survival",
    "out-of-order": "versions",
    "backlog-drain": "backlog-curves",
    "dlq-redrive": "queue-flow",
    "double-send": "send-wire",
    "lost-response": "receive-wire",
    "lease-theft": "two-holders",
    "noisy-neighbour": "tenant-waits",
    "retry-storm": "retry-rate",
}
"""The scenarios in the order of the documentation, and how each is drawn."""


class KnobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A knob, how it was set in each variant, and what it does."""

    name: str
    protected: str
    broken: str
    does: str
    turned: bool = False
    """Whether it was set by hand, to another value than its default."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs: with the protection, or with it taken away."""

    name: Literal["protected", "broken"]
    setting: str
    """The knob that makes the difference, as `conditional write on`."""
    summary: str
    """What was counted, in one sentence."""
    history: History
    checks: tuple[Check, ...]
    history_file: str | None = None
    """The name of the file beside the report that has the whole history."""

    @property
    def verdict(self) -> Literal["held", "failed", "unknown"]:
        """Failed if any check failed, held if all held, and unknown otherwise: also when nothing was checked."""
        verdicts = {check.verdict for check in self.checks}
        if "failed" in verdicts:
            return "failed"
        return "held" if verdicts == {"held"} else "unknown"

    def check(self, name: str) -> Check | None:
        return next((check for check in self.checks if check.name == name), None)


VISIBILITY_MS = 30_000
"""How long a lease lasts where nobody says: as on SQS."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report shows of one run."""

    scenario: str
    rule: str
    """What must be so, as a sentence."""
    found: str
    """What was found, in a few words."""
    story: str
    """What happened, in a sentence or two."""
    protected: Variant
    """The protected variant, or the broken one if it ran alone."""
    broken: Variant | None = None
    breaks: str
    """The check that the broken variant must fail, by its name."""
    picture: Picture
    limits: dict[str, float] = msgspec.field(default_factory=dict)
    """Bounds that the picture draws, by name, and how long a lease lasts (`visibility_ms`)."""
    knobs: tuple[KnobRow, ...] = ()
    commands: tuple[str, ...] = ()
    try_this: str = ""
    guide: str = ""
    """Why this happens and what to do about it."""
    endpoint: str
    """Where it ran, as `this server`."""
    backend: str
    """What answered there, as `penstock 0.9.0 on SQLite, manual clock`."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    difference: str = ""
    """What this endpoint does differently from others."""
    not_observed: str | None = None
    """Why this endpoint cannot show the failure by design, if that is so."""
    seed: int
    started_ms: int
    """The instant it began, since the epoch."""
    duration_ms: int

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (self.protected,) if self.broken is None else (self.protected, self.broken)

    @property
    def visibility_ms(self) -> int:
        """How long a lease lasts."""
        return int(self.limits.get("visibility_ms", VISIBILITY_MS))

    @property
    def broke_as_it_must(self) -> bool:
        """Whether the broken variant failed in the check that it must fail."""
        broken = self.protected if self.broken_alone else self.broken
        check = None if broken is None else broken.check(self.breaks)
        return check is not None and check.verdict == "failed"

    @property
    def broken_alone(self) -> bool:
        """Whether only the broken variant ran."""
        return self.protected.name == "broken"

    @property
    def told(self) -> str:
        """What happened: the story, where the run went that way, and otherwise why it did not."""
        if self.not_observed is not None:
            return f"Not observed here. {self.not_observed}"
        if self.outcome in {"holds", "breaks"}:
            return self.story
        verdict = "failed" if self.protected.verdict == "failed" else "unknown"
        check = next((check for check in self.protected.checks if check.verdict == verdict), None)
        if check is None:
            return "This run did not show the failure: the broken variant kept to the rule, too."
        way = "broke the rule" if verdict == "failed" else "says nothing about the rule"
        return f"This run {way}. {check.rule}: {check.sentence}."

    @property
    def outcome(self) -> Outcome:
        """What the run says about the rule. A broken variant that does not break is a failure: nothing noticed it."""
        if self.broken_alone:
            if self.broke_as_it_must:
                return "breaks"
            return "fails" if self.not_observed is None else "not observed"
        if self.protected.verdict == "failed":
            return "fails"
        if self.not_observed is not None:
            return "not observed"
        if self.protected.verdict == "unknown":
            return "unknown"
        return "holds" if self.broken is None or self.broke_as_it_must else "fails"


def run_json(run: Run) -> dict[str, Any]:
    """Return what `--json` prints: verdicts and how they were come by, without the histories."""
    shown: dict[str, Any] = msgspec.to_builtins(
        {
            "scenario": run.scenario,
            "outcome": run.outcome,
            "rule": run.rule,
            "found": run.found,
            "breaks": run.breaks,
            "seed": run.seed,
            "endpoint": run.endpoint,
            "backend": run.backend,
            "versions": run.versions,
            "not_observed": run.not_observed,
            "difference": run.difference,
            "started_ms": run.started_ms,
            "duration_ms": run.duration_ms,
            "commands": run.commands,
            "knobs": run.knobs,
        }
    )
    shown["variants"] = {
        variant.name: {
            "verdict": variant.verdict,
            "summary": variant.summary,
            "events": len(variant.history.events),
            "history": variant.history_file,
            "checks": msgspec.to_builtins(variant.checks),
        }
        for variant in run.variants
    }
    return shown
