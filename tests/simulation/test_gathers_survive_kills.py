"""kill -9 of servers while a thousand members of a gather end at once: one continuation, and the counts are right."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.simulation.job_processes import ANSWER_S_MAX, Servers
from tests.support.campaigns import GATHERING_EVIDENCE, campaign, trials
from tests.support.job_api import JobApi, Unreachable
from tests.support.postgres import PostgresServer

QUEUE, THEN = "members", "continuations"
SETTINGS = {
    "offer_ms": 1_000,
    "lease_ms": 1_000,
    "retry": {"attempts_max": 1, "losses_max": 1_000, "backoff_ms": 20, "backoff_ms_max": 100},
}
MEMBERS = 1_000 if GATHERING_EVIDENCE else 200
SLICE = 250 if GATHERING_EVIDENCE else 50
ROUNDS = trials(5)
"""Of four gathers each: two that fail, one that collects, and one with a single member that a chain follows."""
LINKS = 5
"""Of the chain."""
KILLS = 6 if GATHERING_EVIDENCE else 2
"""In each round."""
BETWEEN_KILLS_S = (0.0, 1.0)
WORKERS = 3
DEAD_SHARE = 50
ROUND_S_MAX = 300.0
SEED = 12


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """An empty store, and how many servers it is for."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'penstock.db'}", 1
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.dsn(name), 3
    server.drop_database(name)


class Worker:
    """Carries out jobs, a hundred at a time, until it is told to stop. What it loses by a kill, it is offered again."""

    def __init__(self, addresses: Path, name: str) -> None:
        self.failure: BaseException | None = None
        self._api = JobApi(addresses, random.Random(name))
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._api.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._work()
                except Unreachable:
                    self._stopping.wait(0.02)
        except BaseException as failure:  # noqa: BLE001 # It is raised where the round is checked.
            self.failure = failure

    def _work(self) -> None:
        wanted = {"queues": [QUEUE, THEN], "worker": self._name, "count": 100, "wait_ms": 200}
        offers = self._api.ask("POST", "/v1/dequeue", wanted).json()["offers"]
        if not offers:
            return
        self._report([{"do": "accept", "token": one["token"]} for one in offers])
        self._report([self._outcome(one) for one in offers])

    def _outcome(self, offer: dict[str, Any]) -> dict[str, Any]:
        if offer["payload"] == "die":
            failure = {"kind": "planned", "permanent": True}
            return {"do": "fail", "token": offer["token"], "failure": failure}
        return {"do": "complete", "token": offer["token"], "result": offer.get("gather", {}).get("index")}

    def _report(self, reports: list[dict[str, Any]]) -> None:
        # A lease that is over is no matter: somebody else has the job.
        answer = self._api.insist("POST", "/v1/leases", {"reports": reports}, seconds=ANSWER_S_MAX)
        assert answer.status == 200, answer.body
        assert {entry["status"] for entry in answer.json()["results"]} <= {200, 409}, answer.body


class Round:
    """One round: gathers that are opened, and looked at until they have ended."""

    def __init__(self, api: JobApi, chance: random.Random) -> None:
        self._api = api
        self._chance = chance
        self.gathers: dict[str, tuple[int, int, str]] = {}
        """By id: how many members, how many of them are to die, and the error policy."""

    def ask(self, method: str, path: str, value: object = None) -> Any:
        answer = self._api.insist(method, path, value, seconds=ANSWER_S_MAX)
        assert answer.status in {200, 201, 409}, answer.body
        return answer.json()

    def open(self, members: int, on_error: str, *, deaths: bool, links: int = 1) -> None:
        """Open, fill and seal a gather; each call is repeated until it is answered. `links` jobs follow each other."""
        gather_id = str(UUID(int=self._chance.getrandbits(128), version=4))
        jobs = [
            {"queue": QUEUE, "task": "member", "payload": "die" if deaths and index % DEAD_SHARE == 0 else index}
            for index in range(members)
        ]
        self.gathers[gather_id] = (members, sum(job["payload"] == "die" for job in jobs), on_error)
        then: dict[str, Any] = {"queue": THEN, "task": "then", "payload": gather_id}
        for _ in range(links - 1):
            then = {"queue": THEN, "task": "then", "then": then}
        new = {"id": gather_id, "then": then, "on_error": on_error, "jobs": jobs[:SLICE], "seal": members <= SLICE}
        told = self.ask("POST", "/v1/gathers", new)
        self.gathers |= {link["gather"]: (1, 0, on_error) for link in told["links"][1:]}
        for first in range(SLICE, members, SLICE):
            more = {"first": first, "jobs": jobs[first : first + SLICE], "seal": first + SLICE >= members}
            told = self.ask("POST", f"/v1/gathers/{gather_id}/jobs", more)
        assert told["gather"]["sealed"], told

    def ended(self) -> bool:
        """Return whether all have ended, as far as they can: one that fails waits for members that are dead."""
        return all(self._as_planned(self.ask("GET", f"/v1/gathers/{gather_id}")) for gather_id in self.gathers)

    def _as_planned(self, gather: dict[str, Any]) -> bool:
        members, deaths, on_error = self.gathers[gather["id"]]
        if gather["state"] == "pending":
            return False
        assert gather["total"] == members, gather
        assert gather["succeeded"] <= members - deaths, gather
        assert gather["failed"] <= deaths, gather
        if on_error == "fail" and deaths:
            assert gather["state"] == "waiting", gather
            return bool(gather["remaining"] == 0)
        if gather["state"] == "done":
            assert (gather["succeeded"], gather["failed"]) == (members - deaths, deaths), gather
            return True
        return False

    def check_results(self) -> None:
        """Check what all members came to."""
        for gather_id, (members, deaths, _) in self.gathers.items():
            results: list[dict[str, Any]] = []
            while len(results) < members:
                after = f"&after={results[-1]['index']}" if results else ""
                results += self.ask("GET", f"/v1/gathers/{gather_id}/results?limit=500{after}")["results"]
            assert [one["index"] for one in results] == list(range(members))
            assert sum(one["state"] == "dead" for one in results) == deaths
            assert all(one["result"] == one["index"] for one in results if one["state"] == "succeeded")


@campaign
@pytest.mark.slow
@pytest.mark.timeout(int(ROUNDS * ROUND_S_MAX + 60))
def test_one_continuation_whichever_server_is_killed(
    store: tuple[str, int], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(SEED)
    gathers = 0
    with ExitStack() as stack:
        servers = stack.enter_context(Servers(tmp_path, *store))
        api = stack.enter_context(closing(JobApi(servers.addresses, chance)))
        for queue in (QUEUE, THEN):
            made = api.insist("POST", "/v1/queues", {"name": queue, "settings": SETTINGS}, seconds=ANSWER_S_MAX)
            assert made.status in {200, 201}, made.body
        workers = [stack.enter_context(closing(Worker(servers.addresses, f"w{n}"))) for n in range(WORKERS)]
        continued: list[str] = []
        for _ in range(ROUNDS):
            done = Round(api, chance)
            run_round(done, servers, workers, chance)
            gathers += len(done.gathers)
            continued += [
                gather_id
                for gather_id, (_, deaths, on_error) in done.gathers.items()
                if not (on_error == "fail" and deaths)
            ]
            check_continuations(api, continued)
    record_property(
        "evidence",
        f"{gathers} gathers of up to {MEMBERS} members, {ROUNDS * KILLS} servers killed: one continuation each",
    )


def run_round(round_: Round, servers: Servers, workers: list[Worker], chance: random.Random) -> None:
    """Open gathers and kill servers at random until all have ended."""
    pause = threading.Event()
    failures: list[BaseException] = []

    def open_all() -> None:
        try:
            round_.open(1, "fail", deaths=False, links=LINKS)
            round_.open(MEMBERS, "fail", deaths=False)
            round_.open(MEMBERS, "collect", deaths=True)
            round_.open(SLICE, "fail", deaths=True)
        except BaseException as failure:  # noqa: BLE001 # It is raised below.
            failures.append(failure)

    opening = threading.Thread(target=open_all)
    opening.start()
    ends_s = time.monotonic() + ROUND_S_MAX
    for _ in range(KILLS):
        pause.wait(chance.uniform(*BETWEEN_KILLS_S))
        servers.kill(chance)
    opening.join()
    for failure in failures:
        raise failure
    while not round_.ended():
        for worker in workers:
            assert worker.failure is None, worker.failure
        assert time.monotonic() < ends_s, "gathers are stuck"
    round_.check_results()


def check_continuations(api: JobApi, expected: list[str]) -> None:
    """Check that there is one continuation of each gather that has one, and no other."""
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        path = f"/v1/jobs?queue={THEN}&limit=500" + (f"&cursor={cursor}" if cursor else "")
        page = api.insist("GET", path, seconds=ANSWER_S_MAX).json()
        found += [job["gathered"] for job in page["jobs"]]
        cursor = page["cursor"]
    assert sorted(found) == sorted(expected)
