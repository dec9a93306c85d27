"""Worker processes that tests kill, stop and wait for."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from penstock import Penstock, Retry
from penstock.client.requests import NewJob
from tests.tasks.chaos.ledger import read_ledger

PATIENCE_S = 60.0
OFTEN = Retry(1_000, losses=1_000, backoff=0, max_backoff=0)
_ROOT = Path(__file__).parents[3]


class WorkerProcess:
    """A worker as a process, and what it has said."""

    def __init__(self, url: str, folder: Path, queue: str, *, slots: int = 8, grace_s: float = 5.0) -> None:
        self.notices: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._ended = False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tasks.chaos.worker", queue, str(slots), str(grace_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={**os.environ, "CHAOS_URL": url, "CHAOS_FOLDER": str(folder)},
        )
        self.pid = self.process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, in whatever state it is."""
        self.kill()
        self._reader.join(PATIENCE_S)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the notices of a kind so far."""
        with self._changed:
            return [notice for notice in self.notices if notice["notice"] == kind]

    def wait_for(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until it has said this many of a kind."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended or len(self.of(kind)) >= count, PATIENCE_S), self.notices
            found = self.of(kind)
        assert len(found) >= count, f"it ended without {kind}: {self.notices}"
        return found

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait until it has ended; return its exit status."""
        status = self.process.wait(timeout_s)
        self._reader.join(PATIENCE_S)
        return status

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed, contextlib.suppress(ValueError):  # A kill may leave a part of a line.
                self.notices.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Crew:
    """Some workers. One that is killed, or that kills itself, is replaced."""

    def __init__(self, url: str, folder: Path, queue: str, size: int, *, slots: int = 8) -> None:
        self._make: Callable[[], WorkerProcess] = lambda: WorkerProcess(url, folder, queue, slots=slots)
        self._closing = threading.Event()
        self.deaths = 0
        self.everybody: list[WorkerProcess] = []
        self._places: list[WorkerProcess | None] = [None] * size
        self._threads = [threading.Thread(target=self._man, args=(place,), daemon=True) for place in range(size)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for worker in self._places:
            if worker is not None:
                worker.process.kill()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def wait_until_ready(self) -> None:
        """Wait until all places have a worker that takes jobs."""
        wait_until(lambda: all(worker is not None and worker.of("Ready") for worker in self._places))

    def kill(self, chance: random.Random) -> bool:
        """Kill one that takes jobs, if there is one."""
        ready = [worker for worker in self._places if worker is not None and worker.of("Ready")]
        if not ready:
            return False
        worker = chance.choice(ready)
        if worker.process.poll() is not None:
            return False
        worker.process.kill()
        return True

    def said(self, kind: str) -> list[dict[str, Any]]:
        """Return all notices of a kind, of the dead, too."""
        return [notice for worker in self.everybody for notice in worker.of(kind)]

    def _man(self, place: int) -> None:
        while not self._closing.is_set():
            with self._make() as worker:
                self._places[place] = worker
                self.everybody.append(worker)
                if self._closing.is_set():
                    return
                worker.process.wait()
                self.deaths += 1


def wait_until(condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "") -> None:
    """Wait until something holds that nothing signals."""
    ends = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends, what or "it did not come to be"
        threading.Event().wait(0.02)


def wait_for_lines(folder: Path, kind: str, count: int) -> None:
    """Wait until the ledger has this many lines of a kind."""
    wait_until(lambda: len(read_ledger(folder, kind)) >= count, what=f"fewer than {count} lines of {kind!r}")
    assert len(read_ledger(folder, kind)) == count


def enqueue(
    app: Penstock, queue: str, task: str, payloads: Iterable[dict[str, Any]], timeout_ms: int = 600_000
) -> list[str]:
    """Enqueue a job for each payload, to be tried again at once as often as its worker dies; return their ids."""
    entries = app.sync.jobs.enqueue_many(
        [
            NewJob(queue=queue, task=task, payload=payload, timeout_ms=timeout_ms, retry=OFTEN.settings)
            for payload in payloads
        ]
    )
    assert all(entry.job is not None for entry in entries), entries
    return [entry.job.id for entry in entries if entry.job is not None]


def counts(app: Penstock, queue: str) -> dict[str, int]:
    """Return how many jobs are in each state, without those states that none is in."""
    return {state: number for state, number in app.sync.queues.get(queue).counts.items() if number}


def drain(app: Penstock, queue: str, total: int, timeout_s: float = 120.0) -> None:
    """Wait until all jobs have succeeded."""
    wait_until(lambda: counts(app, queue) == {"succeeded": total}, timeout_s, "jobs are stuck")
