"""Victims as processes of their own: started, listened to, stopped or killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

VICTIM = Path(__file__).with_name("crash_victim.py")

Lines = SimpleQueue[str]


class Process:
    """A running victim, whose lines are put into `lines` as they come. It sends `retries` again before all else."""

    def __init__(
        self,
        url: str,
        run: str,
        *,
        batches_max: int,
        lines: Lines,
        retries: Sequence[tuple[str, str, list[str]]] = (),
    ) -> None:
        self.ready = threading.Event()
        self.ended = threading.Event()
        self._lines = lines
        self._process = subprocess.Popen(
            [sys.executable, str(VICTIM), url, run, str(batches_max)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._process.stdin is not None
        for key, queue, bodies in retries:
            print(key, queue, *bodies, file=self._process.stdin)
        print(file=self._process.stdin, flush=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
            if line == "ready\n":
                self.ready.set()
        # Whoever waits for a process that never became ready is not left waiting.
        self.ended.set()
        self.ready.set()

    def kill(self) -> None:
        """End it as nothing else can, and return once all that it told is read."""
        self._process.kill()
        self._finish()

    def stop(self, timeout_s: float) -> int:
        """Ask it to finish, and return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not self.ended.wait(timeout_s):
            self._process.kill()
        return self._finish()

    def _finish(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait()


def taken(lines: Lines) -> Iterator[str]:
    """Take all lines that are there."""
    while not lines.empty():
        yield lines.get()
