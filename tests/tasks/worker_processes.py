"""`penstock worker` as a process of its own, with what it writes, line by line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import textwrap
import threading
import time
from pathlib import Path
from typing import Self

from tests.end_to_end.running import command, environment

PATIENCE_S = 45.0
"""How long anything may take on a machine that has much else to do."""

SHOP = """
    import asyncio
    import os
    import sys
    import threading
    import time
    from penstock import Penstock

    app = Penstock({url!r})
    LIFE = os.urandom(4).hex()

    def say(*what):
        # In one write, so that lines of several processes do not mix.
        os.write(2, (" ".join(map(str, what)) + "\\n").encode())

    @app.task(queue={queue!r})
    async def add(a: int, b: int) -> int:
        return a + b

    @app.task(queue={queue!r})
    async def life(number: int) -> str:
        with open("ledger", "a") as ledger:
            ledger.write(f"{{number}}\\n")
        return LIFE

    @app.task(queue={queue!r})
    async def pid() -> int:
        return os.getpid()

    @app.task(queue={queue!r})
    async def until_file(path: str) -> str:
        say("begun")
        while not os.path.exists(path):
            await asyncio.sleep(0.02)
        return "seen"

    @app.task(queue={queue!r})
    def hang() -> None:
        say("hanging")
        time.sleep(3600)
"""


class WorkerProcess:
    """A `penstock worker` in a folder. What it writes to stderr can be waited for."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment(**variables),
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def command(self, *arguments: str) -> list[str]:
        """Return what is run."""
        return command("worker", *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it and all that it started, in whatever state a test left it."""
        for pid in [*self.children(), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    @property
    def text(self) -> str:
        """All that it has written."""
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, count: int = 1) -> str:
        """Wait until it has written this many lines that match, and return the last of them."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._matching(pattern)) >= count or self._ended, PATIENCE_S)
            found = self._matching(pattern)
        assert len(found) >= count, f"no {pattern!r} in:\n{self.text}"
        return found[count - 1]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def send_until_it_ends(self, number: signal.Signals) -> None:
        """Send a signal again and again, as people do."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self.send(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)

    def press_ctrl_c(self) -> None:
        """Send SIGINT to its group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def exit_code(self) -> int:
        """Wait for its end, and until all that it wrote was read."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def children(self) -> list[int]:
        """Return the ids of the processes that it has started and that still run."""
        try:
            listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except OSError:
            return []
        return [int(pid) for pid in listed.split() if not gone(int(pid))]

    def _matching(self, pattern: str) -> list[str]:
        return [line for line in self.lines if re.search(pattern, line)]

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


def write_module(folder: Path, name: str, text: str) -> Path:
    """Write a Python file, with the folders that it is in."""
    path = folder / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def write_shop(folder: Path, url: str, queue: str, more: str = "") -> None:
    """Write the module `shop`, with an app of this server and tasks of this queue."""
    text = textwrap.dedent(SHOP.format(url=url, queue=queue)) + textwrap.dedent(more)
    write_module(folder, "shop", text)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def gone(pid: int) -> bool:
    """Return whether a process has ended; one that nobody has waited for yet has, too."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a process that is no child of ours, which nothing signals."""
    deadline = time.monotonic() + PATIENCE_S
    while not gone(pid):
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.02)
