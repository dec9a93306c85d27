"""Noticing that a child process has ended, without a thread for each."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


class ExitWatch:
    """Calls `ended` once, on the event loop, when a process has ended.

    Where the kernel has no file descriptors for processes, it only looks after `expect` was called, and then waits in a
    thread of the loop's executor.
    """

    def __init__(self, process: subprocess.Popen[bytes], ended: Callable[[], None]) -> None:
        self._process = process
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[int] | None = None
        self._fd: int | None = None
        try:
            self._fd = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # Not Linux, before Linux 5.3, or in a sandbox.
            return
        self._loop.add_reader(self._fd, self._readable)

    def expect(self) -> None:
        """The process is about to end: it was killed, or its socket is closed."""
        if self._fd is None and self._waiting is None:
            self._waiting = self._loop.run_in_executor(None, self._process.wait)
            self._waiting.add_done_callback(lambda _: self._ended())

    def _readable(self) -> None:
        assert self._fd is not None
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._ended()
