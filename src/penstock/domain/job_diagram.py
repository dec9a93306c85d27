"""The lifecycle of a job, drawn from the table that it follows."""

from __future__ import annotations

from penstock.domain.job import TERMINAL, TRANSITIONS, JobState

STARTS = (JobState.SCHEDULED, JobState.QUEUED)
"""The states that a job is enqueued in."""


def lifecycle_diagram() -> str:
    """Draw `TRANSITIONS` as a Mermaid state diagram; several moves between two states share an arrow."""
    moves: dict[tuple[JobState, JobState], list[str]] = {}
    for (before, move), after in TRANSITIONS.items():
        moves.setdefault((before, after), []).append(move.value)
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state.label}: enqueue" for state in STARTS]
    lines += [f"    {before.label} --> {after.label}: {', '.join(names)}" for (before, after), names in moves.items()]
    lines += [f"    {state.label} --> [*]" for state in sorted(TERMINAL)]
    return "\n".join(lines) + "\n"
