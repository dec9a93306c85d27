"""A command on a terminal, as a person meets it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Self

from tests.end_to_end.running import command, environment
from tests.tasks.worker_processes import PATIENCE_S
from tests.unit.cli.terminals import shown

CTRL_C = "\x03"


class Session:
    """A command in a folder, on a terminal of 80 columns."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        self._process = subprocess.Popen(
            command(*arguments),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment(TERM="xterm-256color", LANG="C.UTF-8", NO_COLOR="1"),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl+C is for its group
        )
        os.close(slave)
        self._written = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        os.close(self._master)

    @property
    def screen(self) -> str:
        """What a person sees."""
        return shown(self._written.decode())

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait until this is on the screen, this often."""
        deadline = time.monotonic() + PATIENCE_S
        while self.screen.count(text) < count:
            assert time.monotonic() < deadline, self.screen
            assert self._read(), f"it ended:\n{self.screen}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def exit_code(self) -> int:
        """Wait for its end, and read all that it wrote."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, self.screen
        return self._process.wait(PATIENCE_S)

    def _read(self) -> bool:
        """Read what comes within a second; return whether more may follow."""
        if not select.select([self._master], [], [], 1.0)[0]:
            return True
        try:
            part = os.read(self._master, 65_536)
        except OSError:  # Linux says so once nobody has the other end.
            return False
        self._written += part
        return bool(part)
