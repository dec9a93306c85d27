"""`--reload`: starts the worker again when a Python file of the project changes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from penstock.cli.failures import INTERRUPTED, Failure
from penstock.cli.worker.children import Child, Signals, described
from penstock.cli.worker.observing import Sayer
from penstock.cli.worker.parent import KILL_AFTER_S
from penstock.cli.worker.settings import WorkerSettings

LOOK_S = 0.5
STOPPING_LOOK_S = 0.05
FILES_MAX = 10_000
SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})

Snapshot = dict[str, tuple[int, int]]
"""When each file was changed, and its size."""


def snapshot(folder: Path) -> Snapshot:
    """Look at all Python files below a folder, except in hidden folders and environments; raises `Failure`."""
    seen: Snapshot = {}
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = list(entries)
        except OSError:
            continue  # It was removed, or is not ours to read.
        if any(entry.name == "pyvenv.cfg" for entry in found):
            continue
        for entry in found:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith(".") and entry.name not in SKIPPED:
                        waiting.append(entry.path)
                elif entry.name.endswith(".py"):
                    status = entry.stat()
                    seen[entry.path] = (status.st_mtime_ns, status.st_size)
            except OSError:
                continue
        if len(seen) > FILES_MAX:
            raise Failure(
                f"There are more than {FILES_MAX:,} Python files below {folder}, too many to watch.",
                hint="start the worker in the folder of your project",
            )
    return seen


def changed_file(before: Snapshot, after: Snapshot) -> str | None:
    """Return a file that is new, gone or different."""
    return next((path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)), None)


class Reloader:
    """Runs a worker in a process of its own, and another one after each change, until it is stopped."""

    def __init__(self, settings: WorkerSettings, folder: Path | None = None) -> None:
        self._settings = settings
        self._folder = folder or Path.cwd()
        self._sayer = Sayer(settings)
        self._seen: Snapshot = {}
        self._child: Child | None = None
        self._stops = 0
        self._kill_at: float | None = None
        """When the process is killed that was asked to end."""

    def run(self) -> int:
        """Return the exit code."""
        self._seen = snapshot(self._folder)
        with Signals().heeded() as signals:
            self._start()
            while True:
                asked = signals.wait(LOOK_S if self._kill_at is None else STOPPING_LOOK_S)
                for _ in asked:
                    self._stops += 1
                    self._end_child()
                code = self._child.ended() if self._child is not None else 0
                if code is not None and self._stops:
                    return INTERRUPTED if self._stops > 1 else 0
                if code is not None:
                    self._go_on(code)
                elif self._kill_at is not None and time.monotonic() >= self._kill_at:
                    assert self._child is not None
                    self._child.signal(signal.SIGKILL)
                if self._stops == 0 and self._kill_at is None:
                    self._look_for_change()

    def _start(self) -> None:
        self._child = Child(self._settings.one_process().arguments(), 1)

    def _go_on(self, code: int) -> None:
        """The process has ended: start another if we ended it, else wait for a change that may help."""
        if self._child is None:
            return
        self._child = None
        if self._kill_at is not None:
            self._kill_at = None
            self._start()
        else:
            self._sayer.warn(f"The worker ended by {described(code)}. It starts again when a file changes.")

    def _look_for_change(self) -> None:
        now = snapshot(self._folder)
        path = changed_file(self._seen, now)
        if path is None:
            return
        self._seen = now
        self._sayer.restart(f"{os.path.relpath(path, self._folder)} changed")
        if self._child is None:
            self._start()
        else:
            self._end_child()

    def _end_child(self) -> None:
        if self._child is not None:
            grace_s = self._settings.grace_s if self._stops <= 1 else 0.0
            self._kill_at = time.monotonic() + grace_s + KILL_AFTER_S
            self._child.signal(signal.SIGTERM)
