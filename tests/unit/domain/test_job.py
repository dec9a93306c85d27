from __future__ import annotations

from pathlib import Path

import pytest

from penstock.domain.job import IN_FLIGHT, TERMINAL, TRANSITIONS, WAITING, AttemptOutcome, JobState, Move
from penstock.domain.job_diagram import STARTS, lifecycle_diagram

JOBS_PAGE = Path(__file__).parents[3] / "docs" / "jobs.md"


def reachable(starts: set[JobState]) -> set[JobState]:
    """Every state that a job can get to from any of these, those themselves included."""
    found: set[JobState] = set()
    ahead = set(starts)
    while ahead:
        found |= ahead
        ahead = {after for (before, _), after in TRANSITIONS.items() if before in found} - found
    return found


def test_every_state_is_reachable() -> None:
    assert reachable(set(STARTS)) == set(JobState)


def test_every_move_happens_somewhere() -> None:
    assert {move for _, move in TRANSITIONS} == set(Move)


def test_every_state_has_one_place() -> None:
    assert sorted([*WAITING, *IN_FLIGHT, *TERMINAL]) == sorted(JobState)


@pytest.mark.parametrize("state", TERMINAL)
def test_a_finished_job_leaves_its_state_by_a_retry_only(state: JobState) -> None:
    assert {move for before, move in TRANSITIONS if before is state} <= {Move.RETRY}


def test_a_succeeded_job_stays_so() -> None:
    assert not [move for before, move in TRANSITIONS if before is JobState.SUCCEEDED]


@pytest.mark.parametrize("state", sorted(WAITING | IN_FLIGHT))
def test_every_unfinished_job_can_be_cancelled_and_can_finish(state: JobState) -> None:
    assert TRANSITIONS[state, Move.CANCEL] is JobState.CANCELLED
    assert reachable({state}) >= TERMINAL


@pytest.mark.parametrize("state", TERMINAL)
def test_only_an_accepted_job_succeeds_or_dies(state: JobState) -> None:
    if state is not JobState.CANCELLED:
        assert {before for (before, _), after in TRANSITIONS.items() if after is state} == {JobState.RUNNING}


def test_the_numbers_in_stores_never_change() -> None:
    assert {state.label: int(state) for state in JobState} == {
        "scheduled": 1,
        "queued": 2,
        "offered": 3,
        "running": 4,
        "retrying": 5,
        "succeeded": 6,
        "dead": 7,
        "cancelled": 8,
    }
    assert {outcome.label: int(outcome) for outcome in AttemptOutcome} == {
        "running": 0,
        "succeeded": 1,
        "failed": 2,
        "lost": 3,
        "released": 4,
        "snoozed": 5,
        "cancelled": 6,
        "timed_out": 7,
    }


def test_the_drawing_has_an_arrow_for_every_transition() -> None:
    arrows = set()
    for line in lifecycle_diagram().splitlines()[1:]:
        ends, _, moves = line.strip().partition(": ")
        before, _, after = ends.partition(" --> ")
        arrows |= {(before, move, after) for move in moves.split(", ") if move not in {"", "enqueue"}}
    assert arrows == {(before.label, move.value, after.label) for (before, move), after in TRANSITIONS.items()}


def test_the_drawing_in_the_docs_is_the_table() -> None:
    _, _, rest = JOBS_PAGE.read_text(encoding="utf-8").partition("```mermaid\n")
    drawing, _, _ = rest.partition("```")
    assert drawing == lifecycle_diagram()
