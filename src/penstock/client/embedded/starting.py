"""Starting an owner as a process of its own, which outlives the one that starts it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.client.errors import ConnectionFailed, OwnerNotStarted
from penstock.client.forking import held
from penstock.server.owner_process import Start, Started
from penstock.store.ownership.paths import sharing_of

if TYPE_CHECKING:
    from collections.abc import Generator

LOG_BYTES_MAX = 1024 * 1024
"""The log of owners begins anew once it is larger than this."""

_ANSWER_BYTES_MAX = 65_536
_INTERPRETERS = ("python", "pypy")
_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from penstock.server.owner_process import main; main()"
)
_INSTEAD = (
    'Use owner="thread" to run the owner in this process, or run one with '
    "`penstock serve --socket {path}.sock --store sqlite:{path}`."
)


def start_process(path: str, lock: int, *, idle_s: float, deadline: float) -> None:
    """Start an owner that adopts `lock`, and return once it serves. The descriptor is closed here.

    Raises `OwnerNotStarted` with what it says if it fails, and `ConnectionFailed` if it takes longer than until
    `deadline`.
    """
    reading, writing = os.pipe()
    with held(reading):
        with held(lock), held(writing):
            start = Start(path=path, lock=lock, ready=writing, idle_s=idle_s)
            command = [python_of(path), "-P", "-c", _BEGIN, msgspec.json.encode(start).decode(), _search_path()]
            with _log_of(path) as log:
                try:
                    process = subprocess.Popen(  # noqa: S603 - this very interpreter
                        command,
                        pass_fds=(lock, writing),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=log,
                        cwd=Path(path).parent,
                        start_new_session=True,
                    )
                except OSError as error:
                    raise OwnerNotStarted(
                        f"The owner of {path} could not be started: {error}. {_INSTEAD.format(path=path)}"
                    ) from error
        # It leaves at once, and its child goes on.
        process.wait()
        _await_ready(path, reading, deadline)


def python_of(path: str) -> str:
    """Return the interpreter that runs this program; raise `OwnerNotStarted` if a process of it cannot be started."""
    executable = sys.executable or ""
    if getattr(sys, "frozen", False) or not Path(executable).name.lower().startswith(_INTERPRETERS):
        raise OwnerNotStarted(
            f"The owner of {path} could not be started: this program is not run by a Python interpreter "
            f"({executable or 'unknown'}). {_INSTEAD.format(path=path)}"
        )
    return executable


def _search_path() -> str:
    """Return where this program finds its modules, so that the owner, in another folder, finds the same ones."""
    return json.dumps([str(Path(place).absolute()) for place in sys.path])


@contextlib.contextmanager
def _log_of(path: str) -> Generator[int]:
    """Open the file beside the database that the owner's log goes to; without one, nobody reads it."""
    name = path + ".log"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        if Path(name).exists() and Path(name).stat().st_size > LOG_BYTES_MAX:
            flags |= os.O_TRUNC
        log = os.open(name, flags, sharing_of(path)[0])
    except OSError:
        yield subprocess.DEVNULL
        return
    with held(log):
        yield log


def _await_ready(path: str, reading: int, deadline: float) -> None:
    answer = b""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    while not answer.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1_000):
            raise ConnectionFailed(f"The owner of {path} was started and is not ready yet.")
        part = os.read(reading, _ANSWER_BYTES_MAX)
        if not part:
            raise OwnerNotStarted(f"The owner of {path} ended at its start. {path}.log may say why.")
        answer += part
    started = msgspec.json.decode(answer, type=Started)
    if started.error is not None:
        raise OwnerNotStarted(f"The owner of {path} could not start. {started.error}")
