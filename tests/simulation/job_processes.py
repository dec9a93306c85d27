"""A whole job service as processes that can be killed: servers on one store, workers, and a producer in a thread."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

from tests.end_to_end.running import RunningServer
from tests.support.job_api import JobApi, publish_addresses

QUEUE = "work"
LEASE_MS = 2_000
SETTINGS = {
    "depth_max": 60,
    "offer_ms": 1_000,
    "lease_ms": LEASE_MS,
    "retry": {"attempts_max": 5, "losses_max": 1_000, "backoff_ms": 20, "backoff_ms_max": 200},
}
ANSWER_S_MAX = 60.0
REPLAY_SHARE = 0.1
_ROOT = Path(__file__).parents[2]
_FULL_PAUSE_S = 0.03


class Servers:
    """`penstock serve`, once or several times on one store; who is killed is started again at another port."""

    def __init__(self, folder: Path, store: str, nodes: int) -> None:
        self.addresses = folder / "addresses"
        self._folder = folder
        self._store = store
        self._starts = 0
        self._nodes: list[RunningServer] = []
        for _ in range(nodes):
            self._nodes.append(self._start())
        self._publish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            node.__exit__()

    def await_death(self, chance: random.Random, seconds: float) -> None:
        """Let so many seconds pass, in which nobody dies."""
        await_death(chance.choice(self._nodes).process, seconds)

    def kill(self, chance: random.Random) -> None:
        """Kill one, and start another in its place."""
        place = chance.randrange(len(self._nodes))
        self._nodes[place].__exit__()
        others = [node for number, node in enumerate(self._nodes) if number != place]
        publish_addresses(self.addresses, [node.url for node in others])
        self._nodes[place] = self._start()
        self._publish()

    def _start(self) -> RunningServer:
        self._starts += 1
        home = self._folder / f"server-{self._starts}"
        home.mkdir()
        return RunningServer(home, "--store", self._store, "--host", "127.0.0.1", "--port", "0")

    def _publish(self) -> None:
        publish_addresses(self.addresses, [node.url for node in self._nodes])


class Workers:
    """Worker processes, each with a name and a journal that no other has."""

    def __init__(self, folder: Path, addresses: Path, count: int) -> None:
        self.journals = folder / "journals"
        self.journals.mkdir()
        self._addresses = addresses
        self._starts = 0
        self._running = [self._start() for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._running:
            _end(worker)

    def await_death(self, chance: random.Random, seconds: float) -> None:
        """Let so many seconds pass, in which nobody dies."""
        await_death(chance.choice(self._running), seconds)

    def kill(self, chance: random.Random) -> None:
        """Kill one, and start another in its place."""
        place = chance.randrange(len(self._running))
        _end(self._running[place])
        self._running[place] = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        name = f"worker-{self._starts}"
        arguments = [str(self._addresses), QUEUE, name, str(LEASE_MS), str(self.journals / name)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.job_worker", *arguments], stdin=subprocess.PIPE, cwd=_ROOT
        )


def await_death(process: subprocess.Popen[Any], seconds: float) -> None:
    """Wait so long for a process, which must not end."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return
    raise AssertionError(f"a process ended by itself, with status {process.returncode}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


class Producer:
    """Enqueues one job after the other, each under a key, again and again until it is known to be stored."""

    def __init__(self, addresses: Path, chance: random.Random) -> None:
        self.plans: dict[str, dict[str, Any]] = {}
        """What each job is to do, by its id, in the order of enqueueing."""
        self.groups: dict[str, str] = {}
        self.replays = 0
        self.refusals = 0
        self._chance = chance
        self._api = JobApi(addresses, chance)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._api.close()

    def stop(self) -> None:
        """Enqueue no more, and return once all that was begun is known to be stored."""
        self._stopping.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._failure is not None:
            raise self._failure

    def _produce(self) -> None:
        try:
            number = 0
            while not self._stopping.is_set():
                self._enqueue(number)
                number += 1
        except BaseException as failure:  # noqa: BLE001 # It is raised where the thread is waited for.
            self._failure = failure

    def _enqueue(self, number: int) -> None:
        plan = make_plan(self._chance)
        job: dict[str, Any] = {"queue": QUEUE, "task": "planned", "payload": plan}
        if self._chance.random() < 0.1:
            job["group"] = f"group-{number % 2}"
        job_id = self._store(f"key-{number}", job)
        assert job_id not in self.plans, "two keys stand for one job"
        self.plans[job_id] = plan
        if "group" in job:
            self.groups[job_id] = job["group"]
        if self._chance.random() < REPLAY_SHARE:
            self.replays += 1
            assert self._store(f"key-{number}", job) == job_id, "one key stands for two jobs"

    def _store(self, key: str, job: dict[str, Any]) -> str:
        ends_s = time.monotonic() + ANSWER_S_MAX
        while True:
            answer = self._api.insist("POST", "/v1/jobs", job, seconds=ANSWER_S_MAX, idempotency_key=key)
            if answer.status in {200, 202}:
                return str(answer.json()["id"])
            # Full, or somebody is about to store it: ourselves, before the connection broke.
            assert answer.status in {409, 429}, answer.body
            assert time.monotonic() < ends_s, f"a job was not taken for {ANSWER_S_MAX:g} s: {answer.body!r}"
            self.refusals += 1
            threading.Event().wait(_FULL_PAUSE_S)


def make_plan(chance: random.Random) -> dict[str, Any]:
    """Plan a job: mostly short and good; some are long, fail a few times or for good, or put themselves off."""
    plan: dict[str, Any] = {"ms": chance.randrange(20), "fails": 0, "permanent": False, "snoozes": False}
    kind = chance.random()
    if kind < 0.03:
        plan |= {"fails": 1_000, "permanent": True}
    elif kind < 0.13:
        plan["fails"] = chance.randint(1, 2)
    elif kind < 0.16:
        plan["snoozes"] = True
    elif kind < 0.18:
        plan["ms"] = LEASE_MS + chance.randrange(1_000)
    return plan
