"""Embedded stores in tests: a tiny HTTP client on a dialer, and the processes that own a file."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.client.embedded.dialer import OwnerDialer
from penstock.client.embedded.handshake import ask_owner
from penstock.client.embedded.opening import owner_dialer
from penstock.client.errors import ConnectionFailed
from penstock.store.ownership.paths import lock_path
from penstock.store.ownership.record import Record, read_record

PATIENCE_S = 40.0
"""How long anything may take on a machine that has much else to do."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RawClient:
    """Sends requests on one connection. `insist` repeats one, on another connection, until it is answered."""

    def __init__(self, dialer: OwnerDialer) -> None:
        self._dialer = dialer
        self._connected: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: object = None, *, seconds: float = PATIENCE_S) -> Answer:
        if self._connected is None:
            self._connected = http.client.HTTPConnection("localhost")
            self._connected.sock = self._dialer.dial(time.monotonic() + seconds)
        try:
            self._connected.sock.settimeout(seconds)
            payload = None if body is None else json.dumps(body)
            self._connected.request(method, path, payload)
            response = self._connected.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        except BaseException:
            self.close()
            raise

    def insist(self, method: str, path: str, body: object = None, *, seconds: float = PATIENCE_S) -> Answer:
        deadline = time.monotonic() + seconds
        while True:
            left_s = deadline - time.monotonic()
            with contextlib.suppress(ConnectionFailed, OSError, http.client.HTTPException):
                answer = self.ask(method, path, body, seconds=left_s)
                if answer.status != 503:
                    return answer
            assert time.monotonic() < deadline, f"{method} {path} was not answered"

    def close(self) -> None:
        if self._connected is not None:
            self._connected.close()
            self._connected = None


class EmbeddedFile:
    """One database file, its dialers in this process, and whoever owns it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dialers: list[OwnerDialer] = []
        self._clients: list[RawClient] = []
        self._processes: set[int] = set()

    def dialer(
        self,
        *,
        owner: Literal["process", "thread"] = "process",
        start: bool = True,
        idle_s: float = 10.0,
        path: Path | None = None,
    ) -> OwnerDialer:
        dialer = owner_dialer(str(path or self.path), owner=owner, start=start, idle_s=idle_s)
        self._dialers.append(dialer)
        return dialer

    def dial(self, dialer: OwnerDialer | None = None, *, seconds: float = PATIENCE_S) -> socket.socket:
        connected = (dialer or self.dialer()).dial(time.monotonic() + seconds)
        self.note_processes()
        return connected

    def client(self, dialer: OwnerDialer | None = None) -> RawClient:
        client = RawClient(dialer or self.dialer())
        self._clients.append(client)
        return client

    def record(self) -> Record | None:
        with contextlib.suppress(FileNotFoundError), Path(lock_path(str(self.path))).open("rb") as lock:
            return read_record(lock.fileno())
        return None

    def owner(self) -> int:
        """Return the pid of the owner."""
        record = self.record()
        assert record is not None
        return record.pid

    def note_processes(self) -> None:
        """Remember the owner and its keeper, to end them."""
        record = self.record()
        if record is not None and record.pid != os.getpid():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                self._processes |= {record.pid, keeper_of(record.pid)}

    def close(self) -> None:
        self.note_processes()
        for client in self._clients:
            client.close()
        for dialer in self._dialers:
            dialer.close()
        # The keeper first, which would replace an owner.
        for pid in sorted(self._processes - {os.getpid(), 1}):
            if runs(pid, self.path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                await_end(pid)


def owner_number(connected: socket.socket) -> int:
    """Ask an owner for its number."""
    view = ask_owner(connected, time.monotonic() + PATIENCE_S)
    assert view is not None
    return view.number


def in_child(work: Callable[[], object], *, user: int | None = None, groups: Sequence[int] = ()) -> str:
    """Fork, as another user if one is given, and return what `work` returns or raises there, as text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if user is not None:
                os.setgroups(groups)
                os.setgid(user)
                os.setuid(user)
            told = str(work())
        except BaseException as error:  # noqa: BLE001 - told to the parent, which decides
            told = repr(error)
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as reader:
        told = reader.read()
    os.waitpid(pid, 0)
    return told


def keeper_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def runs(pid: int, path: Path) -> bool:
    """Return whether a process is an owner process of a file, or its keeper."""
    try:
        return path.name in Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_end(pid: int, *, seconds: float = PATIENCE_S) -> None:
    """Wait until a process is gone. It need not be a child."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([watch], [], [], seconds)
        assert ended, f"process {pid} has not ended"
    finally:
        os.close(watch)


def run_python(code: str, *arguments: str, **settings: Any) -> subprocess.Popen[str]:
    """Start a Python process that runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )
