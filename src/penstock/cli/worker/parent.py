"""The process that looks after this one, seen from here: a supervisor, or a watcher of files."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

VARIABLE = "PENSTOCK_WORKER_PARENT"
"""Number of the socket to the parent, and of this process among its siblings, as `5:1`."""
READY = b"r"
KILL_AFTER_S = 10.0
"""How much longer than its grace a process may take to stop, before it is killed."""


class Parent:
    """A socket to the parent: it hears when this process is ready, and its end is noticed."""

    def __init__(self, file: int, number: int) -> None:
        self.number = number
        """Which of the parent's processes this one is, from 1 on."""
        self._file = file
        self._socket = socket.socket(fileno=file)
        self._socket.set_inheritable(False)  # Not for what a task starts.

    @classmethod
    def from_environment(cls) -> Parent | None:
        """Return the parent of this process, if it has one. What a task starts does not see it."""
        given = os.environ.pop(VARIABLE, None)
        if given is None:
            return None
        file, _, number = given.partition(":")
        return cls(int(file), int(number))

    def say_ready(self) -> None:
        """Report that this process takes jobs."""
        try:
            self._socket.send(READY)
        except OSError:
            return  # It is gone; the thread notices.

    def watch(self, grace_s: float) -> None:
        """If the parent dies, stop as after SIGTERM, so that running jobs get their grace; then die in any case."""
        thread = threading.Thread(target=self._watch, args=(grace_s,), name="penstock-parent", daemon=True)
        thread.start()

    def pass_on(self) -> None:
        """Prepare for another program to take the place of this one."""
        self._socket.set_inheritable(True)
        os.environ[VARIABLE] = f"{self._file}:{self.number}"

    def _watch(self, grace_s: float) -> None:
        try:
            while self._socket.recv(1):
                pass
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_s + KILL_AFTER_S)
        os.kill(os.getpid(), signal.SIGKILL)
