"""kill -9 of the owner while other processes work: nothing is lost, nothing is done twice, and another takes over."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.busy_client import QUEUE
from tests.support.campaigns import campaign, trials
from tests.support.embedded import PATIENCE_S, EmbeddedFile, RawClient, keeper_of

CLIENTS = 4
KILLS = 50
COLD_KILLS = 10
BETWEEN_KILLS_S = (2.6, 3.4)
"""The keeper gives up after five deaths in ten seconds."""
DRAIN_S_MAX = 60.0
SEED = 7


@contextmanager
def busy_clients(file: EmbeddedFile, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Run processes that enqueue jobs and work on them."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.embedded.busy_client", str(file.path), str(folder / f"{name}.ledger"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in (f"client-{number}" for number in range(CLIENTS))
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait(PATIENCE_S)


def drain(clients: list[subprocess.Popen[str]], client: RawClient) -> None:
    """Have no more jobs enqueued, and wait until all are done."""
    for process in clients:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("drain\n")
        process.stdin.flush()
        assert process.stdout.readline() == "drained\n"
    deadline = time.monotonic() + DRAIN_S_MAX
    while counts(client).keys() != {"succeeded"}:
        assert time.monotonic() < deadline, f"jobs are stuck: {counts(client)}"
    for process in clients:
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


def counts(client: RawClient) -> dict[str, int]:
    found = client.insist("GET", f"/v1/queues/{QUEUE}").json()["counts"]
    return {state: number for state, number in found.items() if number}


def kill_owner(view: dict[str, Any]) -> None:
    os.kill(view["pid"], signal.SIGKILL)


def kill_owner_and_keeper(view: dict[str, Any]) -> None:
    os.kill(keeper_of(view["pid"]), signal.SIGKILL)
    os.kill(view["pid"], signal.SIGKILL)


@campaign
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kill", "often"), [(kill_owner, KILLS), (kill_owner_and_keeper, COLD_KILLS)])
def test_nothing_is_lost_or_done_twice_when_the_owner_is_killed(
    file: EmbeddedFile,
    tmp_path: Path,
    kill: Callable[[dict[str, Any]], None],
    often: int,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(SEED)
    client = file.client()
    assert client.insist("POST", "/v1/queues", {"name": QUEUE, "settings": {}}).status == 201
    kills: dict[int, float] = {}
    with busy_clients(file, tmp_path) as clients:
        for _ in range(trials(often)):
            threading.Event().wait(chance.uniform(*BETWEEN_KILLS_S))
            view = client.insist("GET", "/v1/owner").json()
            file.note_processes()
            kills[view["number"]] = time.monotonic()
            kill(view)
        drain(clients, client)
    stored = counts(client)
    lines = [line for place in tmp_path.glob("*.ledger") for line in read_ledger(place)]
    check_ledger(lines, client, stored)
    gaps_ms = [1_000 * (first_answer_s(lines, number + 1) - at_s) for number, at_s in kills.items()]
    record_property(
        "evidence",
        f"{len(kills)} × kill -9 ({kill.__name__}), {stored['succeeded']} jobs of {CLIENTS} processes: 0 lost, "
        f"0 doubled; first answer after {summary(gaps_ms)} ms",
    )


def read_ledger(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_text().splitlines()]


def check_ledger(lines: list[dict[str, Any]], client: RawClient, stored: dict[str, int]) -> None:
    called = {line["job"] for line in lines if line["what"] == "call" and line["verb"] == "enqueue"}
    answers = [line for line in lines if line["what"] == "answer"]
    refused = [line for line in answers if line["status"] not in {200, 201, 202}]
    assert not refused, refused
    assert {line["job"] for line in answers if line["verb"] == "enqueue"} == called
    for verb in ("accept", "complete"):
        often = Counter(line["job"] for line in answers if line["verb"] == verb)
        assert set(often) == called, "every job was worked on"
        assert set(often.values()) == {1}, "and once"
    assert stored == {"succeeded": len(called)}
    for job in called:
        view = client.insist("GET", f"/v1/jobs/{job}").json()
        assert (view["state"], view["attempts"]) == ("succeeded", 1)


def first_answer_s(lines: list[dict[str, Any]], owner: int) -> float:
    return min(float(line["at_s"]) for line in lines if line["what"] == "answer" and line["owner"] >= owner)


def summary(gaps_ms: list[float]) -> str:
    if len(gaps_ms) < 10:
        return ", ".join(f"{gap:.0f}" for gap in gaps_ms)
    tenths = statistics.quantiles(gaps_ms, n=10, method="inclusive")
    return f"min {min(gaps_ms):.0f}, p50 {tenths[4]:.0f}, p90 {tenths[8]:.0f}, max {max(gaps_ms):.0f}"
