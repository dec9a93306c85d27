"""kill -9 of workers while they work: nothing is lost, and nothing that is fenced or recorded is done twice."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.support.campaigns import GATHERING_EVIDENCE, campaign, trials
from tests.tasks.chaos.ledger import read_ledger, read_table
from tests.tasks.chaos.processes import Crew, counts, enqueue, wait_until

LEASE_MS = 1_000
SEED = 13
POINTS = ["before the effect", "between effect and record", "after the record"]
STEPS = 4
DRAIN_S_MAX = 550.0 if GATHERING_EVIDENCE else 250.0

pytestmark = [campaign, pytest.mark.slow, pytest.mark.timeout(600)]


def test_killed_workers_lose_no_job_and_no_fenced_effect_happens_twice(
    served: RunningServer,
    client: Penstock,
    folder: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(SEED)
    total = trials(1_000, share=20)
    client.sync.queues.put(name, lease_ms=LEASE_MS, offer_ms=LEASE_MS)
    with Crew(served.url, folder, name, 3, slots=8) as crew:
        crew.wait_until_ready()
        jobs = []
        for task, part in (("nap", 0.6), ("thread_nap", 0.3), ("process_nap", 0.1)):
            jobs += enqueue(client, name, task, ({"ms": chance.randrange(300)} for _ in range(round(total * part))))
        total = len(jobs)
        kills = kill_until_drained(client, name, crew, total, trials(50), chance)
    check_effects(client, folder, jobs)
    starts = len(read_ledger(folder, "start"))
    fenced = len(read_ledger(folder, "fenced"))
    again = sum(times - 1 for _, times in read_table(folder).values())
    record_property(
        "evidence",
        f"{kills} × kill -9 over {total} jobs: 0 lost; {starts - total} attempts lost and repeated, {again} of them "
        f"killed after their effect; 0 effects twice by one attempt or by an older one, {fenced} stale writes refused",
    )


def kill_until_drained(
    client: Penstock, queue: str, crew: Crew, total: int, kills_max: int, chance: random.Random
) -> int:
    """Kill workers at even steps of the way, until all jobs have succeeded; return how many were killed."""
    kills = 0
    jobs_a_kill = total // (kills_max + 1)

    def is_drained() -> bool:
        nonlocal kills
        succeeded = counts(client, queue).get("succeeded", 0)
        if jobs_a_kill * (kills + 1) <= succeeded < total:
            kills += crew.kill(chance)
        return succeeded == total

    wait_until(is_drained, DRAIN_S_MAX, "jobs are stuck")
    assert counts(client, queue) == {"succeeded": total}
    return kills


def check_effects(client: Penstock, folder: Path, jobs: list[str]) -> None:
    """Check that each job had its effect by the attempt that succeeded, and never twice by one attempt."""
    table = read_table(folder)
    assert set(table) == set(jobs), "no job is lost, and there are no others"
    often = Counter((line["job"], line["attempt"]) for line in read_ledger(folder, "start"))
    assert set(often.values()) == {1}, "one attempt starts once"
    wrote = defaultdict(list)
    for line in read_ledger(folder, "effect"):
        wrote[line["job"]].append(line["attempt"])
    for job in jobs:
        view = client.sync.jobs.get(job)
        assert view.state == "succeeded"
        assert wrote[job] == sorted(set(wrote[job])), "an older attempt never writes after a later one"
        assert table[job][0] == wrote[job][-1] == view.history[-1].number == msgspec.json.decode(view.result)


def test_recorded_steps_are_never_run_again(
    served: RunningServer,
    client: Penstock,
    folder: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(SEED)
    total = trials(150, share=15)
    client.sync.queues.put(name, lease_ms=LEASE_MS, offer_ms=LEASE_MS)
    plans = [
        {
            "steps": STEPS,
            "deaths": [(chance.randrange(STEPS), chance.choice(POINTS)) for _ in range(chance.choice([0, 0, 1, 2]))],
        }
        for _ in range(total)
    ]
    with Crew(served.url, folder, name, 3, slots=4) as crew:
        crew.wait_until_ready()
        jobs = enqueue(client, name, "walk", plans)
        kills = kill_until_drained(client, name, crew, total, trials(15, share=15), chance)
    effects: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    recorded: dict[tuple[str, int], dict[str, Any]] = {}
    for line in read_ledger(folder, "effect", "recorded"):
        key = line["job"], line["step"]
        if line["what"] == "effect":
            assert key not in recorded, f"a recorded step was run again: {line}, {recorded[key]}"
            effects[key].append(line)
        else:
            recorded.setdefault(key, line)
    assert set(effects) == {(job, number) for job in jobs for number in range(STEPS)}, "every step was taken"
    for job in jobs:
        events = client.sync.jobs.events(job, kinds=["step"]).events
        assert len(events) == STEPS, "and is recorded once"
        # The recorded result is that of the last run of the step, and is what the task got in every later attempt.
        taken = [effects[job, number][-1]["attempt"] for number in range(STEPS)]
        assert msgspec.json.decode(client.sync.jobs.get(job).result) == taken
        assert [event.attempt for event in events] == taken
    repeated = sum(len(lines) - 1 for lines in effects.values())
    deaths = Counter(line["point"] for line in read_ledger(folder, "death"))
    assert repeated >= deaths[POINTS[1]]
    record_property(
        "evidence",
        f"{total} jobs of {STEPS} steps, {kills} × kill -9 and {sum(deaths.values())} planned deaths: "
        f"{repeated} steps killed between effect and record ran again ({deaths[POINTS[1]]} of them planned); "
        "0 recorded steps ran again",
    )
