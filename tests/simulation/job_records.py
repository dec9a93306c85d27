"""What must be true of jobs when all is over, whoever was killed: told by the server's records and the workers'."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.simulation.job_processes import Producer

TERMINAL_EVENTS = {"job.succeeded": "succeeded", "job.dead": "dead", "job.cancelled": "cancelled"}


class Run:
    """One attempt as its worker saw it: from when to when it held the job, as far as it could know."""

    def __init__(self, worker: str, start_s: float, until_s: float) -> None:
        self.worker = worker
        self.start_s = start_s
        self.until_s = until_s
        self.end_s = math.inf
        self.told: tuple[str, int] | None = None

    @property
    def held_until_s(self) -> float:
        """Until when nobody else may hold it: the end of the work, or that of the lease."""
        return min(self.end_s, self.until_s)


Runs = dict[tuple[str, int], Run]


def read_journals(folder: Path) -> Runs:
    """Read what all workers did, by job and attempt. No attempt is run twice."""
    runs: Runs = {}
    for journal in sorted(folder.iterdir()):
        # What follows the last line break is the beginning of a line that a kill cut off.
        for line in journal.read_text().split("\n")[:-1]:
            note = json.loads(line)
            key = (note["job"], note["attempt"])
            match note["what"]:
                case "start":
                    assert key not in runs, f"two holders ran {key}: {runs[key].worker} and {journal.name}"
                    runs[key] = Run(journal.name, note["at_s"], note["until_s"])
                case "extend":
                    runs[key].until_s = note["until_s"]
                case "end":
                    runs[key].end_s = note["at_s"]
                case "told":
                    runs[key].told = (note["verb"], note["status"])
    return runs


def check_job(job: dict[str, Any], plan: dict[str, Any], runs: Runs) -> None:
    """Check a job that is finished: how it ended, and its record of each attempt."""
    assert job["state"] == ("dead" if plan["permanent"] else "succeeded"), job
    history = job["history"]
    assert [attempt["number"] for attempt in history] == list(range(1, job["attempts"] + 1)), job
    outcomes = Counter(attempt["outcome"] for attempt in history)
    assert outcomes["running"] == 0, job
    assert all(attempt["ended_at_ms"] is not None for attempt in history), job
    assert outcomes["lost"] == job["losses"], job
    assert outcomes["failed"] == job["failures"] == (1 if plan["permanent"] else plan["fails"]), job
    assert outcomes["succeeded"] == (0 if plan["permanent"] else 1), job
    assert history[-1]["outcome"] == ("failed" if plan["permanent"] else "succeeded"), job
    recorded = {attempt["number"]: attempt for attempt in history}
    for (job_id, number), run in runs.items():
        if job_id == job["id"]:
            assert recorded[number]["worker"] == run.worker, (job, number)
            check_report(recorded[number]["outcome"], run)


def check_report(outcome: str, run: Run) -> None:
    """Check that a worker was told what happened: who heard 200 was believed, who heard 409 was not."""
    if run.told is None:
        return
    verb, status = run.told
    believed = {"complete": "succeeded", "fail": "failed", "snooze": "snoozed"}[verb]
    assert (outcome == believed) == (status == 200), (outcome, verb, status)


def check_holders(producer: Producer, runs: Runs) -> None:
    """Check that nobody began a job, or the next one of its group, while another held it."""
    by_job: dict[str, list[Run]] = defaultdict(list)
    for (job_id, _), run in sorted(runs.items(), key=lambda each: each[0][1]):
        by_job[job_id].append(run)
    lines = [by_job[job_id] for job_id in producer.plans]
    for group in set(producer.groups.values()):
        # In the order of enqueueing: all attempts of one, then all of the next.
        members = [job_id for job_id in producer.plans if producer.groups.get(job_id) == group]
        lines.append([run for job_id in members for run in by_job[job_id]])
    for line in lines:
        for before, after in pairwise(line):
            assert before.held_until_s <= after.start_s, (vars(before), vars(after))


def check_events(job: dict[str, Any], stream: bytes) -> None:
    """Check that a job's events have no gap, and that it ended once, last of all, as its state says."""
    events = [_fields(event) for event in stream.decode().split("\n\n") if event and not event.startswith(":")]
    end = events.pop()
    assert end["event"] == "end", end
    assert json.loads(end["data"]) == {"state": job["state"]}
    assert [event["id"] for event in events] == [str(number + 1) for number in range(len(events))]
    ends = [TERMINAL_EVENTS[event["event"]] for event in events if event["event"] in TERMINAL_EVENTS]
    assert ends == [job["state"]], events
    assert events[-1]["event"] in TERMINAL_EVENTS, events


def _fields(event: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in event.splitlines())
