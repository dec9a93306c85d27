"""A server that stays when the command that started it ends, and can be stopped by another command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path("data/lab")
START_S_MAX = 30.0
STOP_S_MAX = 20.0
_PAUSE_S = 0.05
_TAIL_LINES = 8
_READY = re.compile(r"^penstock is ready at (?P<url>\S+)$", re.MULTILINE)


class NotStarted(RuntimeError):
    """The server has ended at once, or was not ready in time. The message has what it wrote."""


class NotStopped(RuntimeError):
    """The server did not end in time."""


class Running(NamedTuple):
    """A server that runs."""

    pid: int
    url: str


class BackgroundServer:
    """The server of a folder, with its store, its log and its pid file there.

    The server inherits a lock on its pid file. As long as that lock is held, the pid in the file is the server's.
    Afterwards it may be anybody's, and is never signalled.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._pid_file = folder / "server.pid"
        self._log = folder / "server.log"

    @property
    def running(self) -> Running | None:
        """The server, if it runs."""
        try:
            with self._pid_file.open("r+") as file:
                return None if _lock(file.fileno()) else self.recorded
        except FileNotFoundError:
            return None

    @property
    def recorded(self) -> Running | None:
        """The server that was started last, also if it runs no more."""
        try:
            pid, _, url = self._pid_file.read_text(encoding="utf-8").strip().partition(" ")
        except FileNotFoundError:
            return None
        return Running(int(pid), url) if url else None

    def start(self, *, port: int, region: str) -> Running:
        """Start the server, and return once it takes requests; raises `NotStarted`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._pid_file.open("a+") as file, self._log.open("wb") as log:
            if not _lock(file.fileno()):
                raise NotStarted(f"Another command starts a server in {self.folder}.")
            file.truncate(0)
            # Variables of somebody else's server must not change this one.
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
            process = subprocess.Popen(  # noqa: S603 - this interpreter
                self._command(port, region),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[file.fileno()],
                start_new_session=True,
            )
            with self._ended_on_failure(process):
                url = self._ready(process)
                file.write(f"{process.pid} {url}\n")
                file.flush()
        return Running(process.pid, url)

    def stop(self) -> Running | None:
        """Stop the server and return what ran; None if none runs. Raises `NotStopped`."""
        running = self.running
        if running is not None:
            os.kill(running.pid, signal.SIGTERM)
            until_s = time.monotonic() + STOP_S_MAX
            while self.running is not None:
                if time.monotonic() >= until_s:
                    raise NotStopped(f"The server, pid {running.pid}, has not stopped within {STOP_S_MAX:g} s.")
                time.sleep(_PAUSE_S)
        return running

    def forget(self) -> None:
        """Remove the pid file and the log of a server that has stopped. Its store is kept: others may have used it."""
        assert self.running is None
        for file in (self._pid_file, self._log):
            file.unlink(missing_ok=True)

    def _command(self, port: int, region: str) -> list[str]:
        words = [sys.executable, "-m", "penstock", "serve", "--host", "127.0.0.1", "--port", str(port)]
        # A scenario's queue is made anew as soon as it is gone.
        words += ["--region", region, "--name-reuse-delay", "0"]
        return [*words, "--store", f"sqlite:{self.folder.resolve() / 'penstock.db'}"]

    def _ready(self, process: subprocess.Popen[bytes]) -> str:
        until_s = time.monotonic() + START_S_MAX
        while time.monotonic() < until_s:
            ended = process.poll() is not None
            written = self._log.read_text(encoding="utf-8", errors="replace")
            if found := _READY.search(written):
                return found["url"]
            if ended:
                raise NotStarted("\n".join(written.strip().splitlines()[-_TAIL_LINES:]))
            time.sleep(_PAUSE_S)
        raise NotStarted(f"It was not ready within {START_S_MAX:g} s.")

    @contextlib.contextmanager
    def _ended_on_failure(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        try:
            yield
        except BaseException:
            process.kill()
            process.wait()
            raise
        # It outlives this process, which has nothing to wait for.
        process.returncode = 0


def _lock(descriptor: int) -> bool:
    """Take the lock of a file; False if somebody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
