"""Worker processes, seen from the one that looks after them, and the signals that it waits for."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

from penstock.cli.worker.parent import READY, VARIABLE


def program() -> list[str]:
    """Return the command line of this process without the arguments of ours: the interpreter, its flags, and us."""
    ours = len(sys.argv) - 1
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - ours]]


class Child:
    """A worker process. It dies when this process does, and is in a group of its own: Ctrl+C does not reach it."""

    def __init__(self, arguments: Sequence[str], number: int) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._socket = ours
        self._ready = False
        with theirs:
            file = theirs.fileno()
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [*program(), *arguments],
                stdin=subprocess.DEVNULL,
                env={**os.environ, VARIABLE: f"{file}:{number}"},
                pass_fds=(file,),
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ready(self) -> bool:
        """Whether it has said that it takes jobs."""
        if not self._ready:
            with contextlib.suppress(OSError):
                self._ready = self._socket.recv(16).startswith(READY)
        return self._ready

    def ended(self) -> int | None:
        """Return its exit code, negative if a signal ended it; None while it runs."""
        code = self._process.poll()
        if code is not None:
            self.ready  # noqa: B018 - what it said last is read before the socket is closed
            self._socket.close()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        self._process.send_signal(number)


class Signals:
    """SIGTERM, SIGINT and the ends of children, as they come, within a `with` block."""

    _HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

    @contextlib.contextmanager
    def heeded(self) -> Iterator[Signals]:
        """Collect signals instead of ending by them."""
        self._reading, writing = socket.socketpair()
        with self._reading, writing:
            self._reading.setblocking(False)
            writing.setblocking(False)
            before = signal.set_wakeup_fd(writing.fileno())
            handlers = {number: signal.signal(number, _nothing) for number in self._HEEDED}
            try:
                yield self
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(before)

    def wait(self, timeout_s: float) -> list[int]:
        """Wait for signals, at most for this long, and return how often each of those came that ask us to stop."""
        select.select([self._reading], [], [], max(timeout_s, 0.0))
        try:
            came = self._reading.recv(4096)
        except BlockingIOError:
            return []
        return [number for number in came if number != signal.SIGCHLD]


def described(code: int) -> str:
    """Return how a process ended, by its exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _nothing(number: int, frame: FrameType | None) -> None:
    """Take a signal, which is read from the socket."""
