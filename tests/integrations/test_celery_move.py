"""An application leaves Celery task by task, with both fleets at work and killed now and then: no call is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import pytest

from penstock import Penstock
from tests.end_to_end.running import REGION, RunningServer, command
from tests.end_to_end.test_python_clients import amazon_environment
from tests.support.campaigns import GATHERING_EVIDENCE, campaign, trials

pytestmark = [campaign, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
VISIBILITY_S = 4
"""After this time SQS delivers again what a killed Celery worker had."""
LEASE_MS = 6_000
"""Longer than a worker may be without a processor: a lease that ends would double an effect without a kill."""
SEED = 8
STEPS = [{"mail"}, {"mail", "report"}, {"mail", "report", "sync"}, {"mail", "report"}, {"mail", "report", "sync"}]
"""Which tasks are moved, in order. One is moved back, and moved again."""


class Effect(NamedTuple):
    """That a call had its effect, where, and by which worker."""

    call: str
    fleet: str
    group: int
    task_id: str


class Running:
    """A process with all that it starts, so that it can be killed."""

    def __init__(self, folder: Path, variables: dict[str, str], *arguments: str) -> None:
        self.log = folder / f"log-{next(_numbers)}"
        self.out = folder / f"{self.log.name}.out"
        with self.log.open("wb") as log, self.out.open("wb") as out:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=folder,
                env=variables,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> int:
        """Kill it, and return the group that it was."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        return self.process.pid

    def ended(self) -> list[str]:
        """Wait for its end, and return the lines that it printed."""
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()
        return self.out.read_text().split()


_numbers = itertools.count()


class Fleets:
    """The workers of both kinds, and who of them was killed."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._workers = {"celery": shop.celery_worker(), "penstock": shop.penstock_worker()}
        self.killed: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.kill()

    def kill(self, fleet: str) -> None:
        """Kill the worker of a fleet, and start another."""
        self.killed.append(self._workers[fleet].kill())
        start = self._shop.celery_worker if fleet == "celery" else self._shop.penstock_worker
        self._workers[fleet] = start()

    def logs(self) -> str:
        return "\n".join(f"{name}:\n{worker.log.read_text()[-3_000:]}" for name, worker in self._workers.items())


class Shop:
    """The shop of `moving_shop`, on a server, in a folder."""

    def __init__(self, server: RunningServer, folder: Path, queue: str) -> None:
        self.folder = folder
        self.queue = queue
        address = urlsplit(server.url)
        self.variables = amazon_environment() | {
            "PYTHONPATH": str(ROOT),
            "SHOP_BROKER_URL": f"sqs://any:any@{address.hostname}:{address.port}//",
            "SHOP_FOLDER": str(folder),
            "SHOP_QUEUE": queue,
            "SHOP_REGION": REGION,
            "SHOP_URL": server.url,
            "SHOP_VISIBILITY_S": str(VISIBILITY_S),
        }
        self.move(set())

    def move(self, tasks: set[str]) -> None:
        """Have these tasks moved, and no others, from the next call on."""
        made = self.folder / "moved-next"
        made.write_text(" ".join(sorted(tasks)))
        made.replace(self.folder / "moved")

    def celery_worker(self) -> Running:
        pool = ["--pool", "prefork", "--concurrency", "2"] if GATHERING_EVIDENCE else ["--pool", "solo"]
        work = ["--app", "tests.integrations.moving_shop:celery", "worker", *pool, "--loglevel", "INFO"]
        return Running(self.folder, self.variables, sys.executable, "-m", "celery", *work)

    def penstock_worker(self) -> Running:
        work = command("worker", "tests.integrations.moving_shop:penstock", "-q", f"{self.queue}:4")
        return Running(self.folder, self.variables, *work)

    def producer(self, kind: str, pause_s: float) -> Running:
        old = {"SHOP_OLD": "1"} if kind == "old" else {}
        call = ["-m", "tests.integrations.moving_shop", kind, str(pause_s)]
        return Running(self.folder, self.variables | old, sys.executable, *call)

    def effects(self) -> list[Effect]:
        path = self.folder / "ledger"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Effect(call, fleet, int(group), task_id) for call, fleet, group, task_id in map(str.split, lines)]

    def wait_for_effects(self, count: int, logs: Callable[[], str], *fleets: str) -> None:
        """Wait until each of these fleets, or all together, have had so many more effects than now."""

        def counts() -> list[int]:
            ran = [effect.fleet for effect in self.effects()]
            return [ran.count(fleet) for fleet in fleets] or [len(ran)]

        before = counts()
        until(lambda: all(now >= then + count for now, then in zip(counts(), before, strict=True)), logs)


@pytest.fixture
def shop(served: RunningServer, tmp_path: Path, name: str) -> Shop:
    """A shop with a queue whose leases are short."""
    with Penstock(served.url) as client:
        client.sync.queues.put(name, lease_ms=LEASE_MS, offer_ms=LEASE_MS)
    return Shop(served, tmp_path, name)


def until(condition: Callable[[], bool], logs: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, logs()
        time.sleep(0.05)


@pytest.mark.parametrize("served", ["sqlite", "postgres"] if GATHERING_EVIDENCE else ["sqlite"], indirect=True)
def test_tasks_move_one_by_one_and_no_call_is_lost(shop: Shop, record_property: Callable[[str, object], None]) -> None:
    chance = random.Random(SEED)
    kills = trials(40, share=20)
    between = trials(100, share=20)
    pause_s = 0.02 if GATHERING_EVIDENCE else 0.05
    with Fleets(shop) as fleets, shop.producer("old", pause_s) as old, shop.producer("new", pause_s) as new:
        shop.wait_for_effects(between, fleets.logs, "celery")
        victims = itertools.cycle(["celery", "penstock"])
        for step, tasks in enumerate(STEPS):
            shop.move(tasks)
            at_work = ["penstock"] if len(tasks) == 3 else ["celery", "penstock"]
            shop.wait_for_effects(1 + chance.randrange(between), fleets.logs, *at_work)
            for _ in range(kills * (step + 1) // len(STEPS) - kills * step // len(STEPS)):
                fleets.kill(next(victims))
                shop.wait_for_effects(between, fleets.logs)
        (shop.folder / "stop").touch()
        calls = {*old.ended(), *new.ended()}
        until(lambda: calls <= {effect.call for effect in shop.effects()}, fleets.logs)
    check(shop, calls, fleets.killed, record_property)


def check(shop: Shop, calls: set[str], killed: list[int], record_property: Callable[[str, object], None]) -> None:
    by_call: dict[str, list[Effect]] = defaultdict(list)
    for effect in shop.effects():
        by_call[effect.call].append(effect)
    assert calls <= set(by_call), "lost"
    doubled = {call: effects for call, effects in by_call.items() if len(effects) > 1}
    for effects in doubled.values():
        # Celery delivers again what was not acknowledged in time. Penstock repeats only what a dead worker had.
        assert all(effect.fleet == "celery" or effect.group in killed for effect in effects[:-1]), effects
        assert len({effect.task_id for effect in effects}) == 1
    ids = {effects[0].task_id for effects in by_call.values()}
    assert len(ids) == len(by_call), "each call sees a request of its own"
    fleets = [effect.fleet for effects in by_call.values() for effect in effects]
    assert set(fleets) == {"celery", "penstock"}
    record_property(
        "evidence",
        f"{len(calls)} calls by old and new producers, {len(STEPS)} moves and moves back, {len(killed)} × kill -9 of "
        f"workers of both kinds: 0 lost; {fleets.count('celery')} effects in Celery, {fleets.count('penstock')} in "
        f"Penstock; {len(doubled)} calls had their effect twice, each after a kill or a late acknowledgement in Celery",
    )
