"""`Nursery`: processes that tests kill, forked from one that has loaded everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.end_to_end.running import environment

ROOT = Path(__file__).parents[2]


class Nursery:
    """Forks processes that are meant to be killed: to start Python for each would take longer than all the rest."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.transactions.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate(timeout=20)

    def start(self, what: str, *arguments: object) -> int:
        """Fork a process and return its pid, once it has something to lose."""
        return int(self._ask("\t".join([what, *map(str, arguments)])))

    def wait(self) -> int:
        """Return the exit code of the last process, a negative signal if it was killed."""
        return int(self._ask(""))

    def run(self, what: str, *arguments: object) -> int:
        """Fork a process, wait for its end, and return its exit code."""
        self.start(what, *arguments)
        return self.wait()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()
