"""Enqueueing where others are quicker at every step."""

from __future__ import annotations

import pytest

from penstock.domain.job import JobDraft
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.store.jobs.enqueueing import enqueue
from penstock.store.jobs.script import Overtaken, Row, Tx
from penstock.store.jobs.surroundings import Surroundings
from penstock.testing import CountedIds

QUEUE = JobQueue(id=1, name="q", settings=JobQueueSettings(), paused=False, revision=1, created_at_ms=0)
AROUND = Surroundings(CountedIds(), JobLimits(), lambda: 0.5)
SURVEY: list[Row] = [("", 0, 0)]


def overtaken(draft: JobDraft, steps: list[tuple[str, list[Row]]]) -> None:
    """Run the script on these rows, statement by statement; it is given up after the last."""
    script = enqueue(Tx(0, 0), AROUND, QUEUE, [draft], {})
    name, _ = next(script)
    for expected, rows in steps[:-1]:
        assert name == expected
        name, _ = script.send(rows)
    assert name == steps[-1][0]
    with pytest.raises(Overtaken):
        script.send(steps[-1][1])


def test_a_job_that_had_the_unique_key_and_is_finished_by_now() -> None:
    overtaken(
        JobDraft(id="a", task="t", payload=b"1", unique_key="u"),
        [("survey", SURVEY), ("unique_jobs", []), ("insert_jobs", []), ("survey", SURVEY), ("unique_jobs", [])],
    )


def test_a_job_that_had_the_idempotency_key_and_is_removed_by_now() -> None:
    overtaken(
        JobDraft(id="a", task="t", payload=b"1", idempotency_key=b"k" * 32),
        [("survey", SURVEY), ("known_keys", []), ("insert_keys", []), ("known_keys", [])],
    )


def test_who_brings_several_unique_keys_takes_turns_with_others_before_anything_else() -> None:
    def first(*keys: str | None) -> str:
        drafts = [JobDraft(id=f"{place}", task="t", payload=b"1", unique_key=key) for place, key in enumerate(keys)]
        return next(enqueue(Tx(0, 0), AROUND, QUEUE, drafts, {}))[0]

    assert first("a", None, "b") == "take_turns"
    assert first("a", None) == "survey"
