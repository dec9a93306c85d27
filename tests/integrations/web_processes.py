"""uvicorn as a process of its own, with what it writes, line by line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tests.docs.pages import ROOT
from tests.end_to_end.running import environment

PATIENCE_S = 45.0


class WebServer:
    """A uvicorn that has said that it serves."""

    def __init__(self, folder: Path, application: str, *arguments: str, **variables: str) -> None:
        paths = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT / "examples")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", application, "--port", "0", "--no-access-log", *arguments],
            cwd=folder,
            env=environment(PYTHONPATH=paths, **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    @property
    def url(self) -> str:
        """Where it serves, once it does."""
        line = self.wait_for("Uvicorn running on")
        return next(word for word in line.split() if word.startswith("http://"))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, part: str) -> str:
        """Wait for a line that has this part, and return it."""
        with self._changed:
            self._changed.wait_for(lambda: any(part in line for line in self.lines) or self._ended, PATIENCE_S)
        found = [line for line in self.lines if part in line]
        assert found, f"no {part!r} in:\n{self.text}"
        return found[0]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop, and wait until it has done so cleanly. uvicorn then ends by the signal that it took."""
        self.process.send_signal(how)
        assert self.exit_code() in {0, -how}, self.text
        assert "Application shutdown complete." in self.text
        assert "Traceback" not in self.text

    def exit_code(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
