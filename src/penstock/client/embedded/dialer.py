"""Connections to the owner of a SQLite file: found, waited for, or started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.client import forking
from penstock.client.embedded.handshake import ask_for_hand_over, ask_owner
from penstock.client.embedded.starting import start_process
from penstock.client.errors import (
    Closed,
    ConnectionFailed,
    OwnerAccessDenied,
    OwnerError,
    OwnerNotFound,
    OwnerNotResponding,
    OwnerNotStarted,
    UrlInvalid,
)
from penstock.domain.errors import StoreUnavailable, StoreUrlInvalid
from penstock.server.unix_sockets import short_address
from penstock.store.ownership.owner import SCHEMA, open_lock, try_lock
from penstock.store.ownership.paths import canonical_path, lock_path, socket_path, sqlite_file
from penstock.store.ownership.record import read_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.client.embedded.thread_owner import ThreadOwner
    from penstock.store.ownership.record import Record
    from penstock.wire.jobs.ownership import OwnerView

SEEK_S = 10.0
"""How long an owner may hold the file without a socket to connect to."""

ANSWER_S = 10.0
"""How long an owner may take for its first answer on a connection."""

_PAUSE_S = (0.001, 0.05)
"""How long to wait until the next look, at least and at most; at random, so that many clients do not meet."""


class OwnerDialer:
    """Connects to the owner of a file.

    - *Seeking*: connect. If nobody listens, try to lock the file: if that works, start an owner; otherwise look again.
    - *Starting*: hand the lock to a new owner, wait until it serves, and seek again. Exactly one client gets there.
    - *Connected*: one connection without requests is kept, as a sign that this process lives.

    It is for many threads at once, and after a fork the child connects anew.
    """

    authority = "localhost"
    tls = None
    server_name = None

    def __init__(self, path: str, *, owner: Literal["process", "thread"], start: bool, idle_s: float) -> None:
        self.name = f"sqlite:{path}"
        self._path = canonical_path(str(Path(path).expanduser()))
        self._in_thread = owner == "thread"
        self._start = start
        self._idle_s = idle_s
        self._kept: socket.socket | None = None
        self._kept_number = 0
        self._thread_owner: ThreadOwner | None = None
        self._keeping = threading.Lock()
        self._closed = False
        forking.register(self)

    def dial(self, deadline: float) -> socket.socket:
        """Return a connection to the owner, which may be started for it, by `deadline`."""
        seek_by = time.monotonic() + SEEK_S
        leaving: set[int] = set()
        last = self._record()
        while True:
            if self._closed:
                raise Closed("This Penstock was closed.")
            connected = self._connect(deadline, leaving)
            if connected is not None:
                return connected
            if self._own(deadline):
                seek_by = time.monotonic() + SEEK_S
                continue
            now = time.monotonic()
            record = self._record()
            if record != last:
                # Another owner, or the same one further on.
                last, seek_by = record, now + SEEK_S
            if now >= min(seek_by, deadline):
                message = f"The owner of {self._path} does not serve ({record or 'it left no record'})."
                raise OwnerNotFound(message) if now >= seek_by else ConnectionFailed(message)
            time.sleep(min(random.uniform(*_PAUSE_S), deadline - now))  # noqa: S311 - no secret

    def close(self) -> None:
        """Let the owner go, unless others need it."""
        self._closed = True
        with self._keeping:
            kept, self._kept = self._kept, None
            thread_owner, self._thread_owner = self._thread_owner, None
        if kept is not None:
            kept.close()
        if thread_owner is not None:
            thread_owner.stop()

    # -- connecting -------------------------------------------------------------------------------

    def _connect(self, deadline: float, leaving: set[int]) -> socket.socket | None:
        """Return a connection on which the owner has answered; None if there is none at present.

        An owner of an older version is asked for a hand-over. `leaving` has the one that agreed; no other is asked.
        """
        connected = self._reach(deadline)
        if connected is None:
            return None
        with contextlib.ExitStack() as undo:
            undo.callback(connected.close)
            try:
                view = ask_owner(connected, min(deadline, time.monotonic() + ANSWER_S))
                if view is not None and self._hand_over(connected, view, deadline, leaving):
                    return None
            except TimeoutError:
                raise self._not_responding(deadline) from None
            except PermissionError as error:
                raise OwnerAccessDenied(f"The owner of {self._path} refuses this process: {error}") from error
            except OSError:
                return None  # It ends just now.
            self._keep(0 if view is None else view.number, deadline)
            undo.pop_all()
        return connected

    def _hand_over(self, connected: socket.socket, view: OwnerView, deadline: float, leaving: set[int]) -> bool:
        """Return whether an owner ends for us, because it is of an older version."""
        answer_by = min(deadline, time.monotonic() + ANSWER_S)
        older = view.schema < SCHEMA and self._start
        if older and not leaving and ask_for_hand_over(connected, SCHEMA, answer_by):
            leaving.add(view.number)
        return view.number in leaving

    def _keep(self, number: int, deadline: float) -> None:
        """Have one connection to this owner that keeps it alive, besides those that are used."""
        with self._keeping:
            if self._closed or (self._kept is not None and self._kept_number == number):
                return
            last, self._kept = self._kept, None
            if last is not None:
                last.close()
            self._kept = self._reach(deadline)
            self._kept_number = number

    def _reach(self, deadline: float) -> socket.socket | None:
        """Connect to the socket beside the file, or else to the one that the owner's record names."""
        beside = socket_path(self._path)
        connected = _connect_to(beside, deadline)
        if connected is not None:
            return connected
        record = self._record()
        if record is None or record.state != "ready" or record.socket is None:
            return None
        named = str(Path(self._path).parent / record.socket)
        return None if named == beside else _connect_to(named, deadline)

    def _not_responding(self, deadline: float) -> OwnerNotResponding | ConnectionFailed:
        record = self._record()
        pid = 0 if record is None else record.pid
        if time.monotonic() >= deadline:
            return ConnectionFailed(f"The owner of {self._path}, pid {pid}, did not answer in time.")
        return OwnerNotResponding(self._path, pid, ANSWER_S)

    def _record(self) -> Record | None:
        try:
            lock = os.open(lock_path(self._path), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        with forking.held(lock):
            return read_record(lock)

    # -- owning -----------------------------------------------------------------------------------

    def _own(self, deadline: float) -> bool:
        """Start an owner, if there is none; return whether one was started."""
        if not self._start:
            self._check_owned()
            return False
        try:
            sqlite_file(f"sqlite:{self._path}")  # Makes the folder, or says what is wrong with the path.
            lock = open_lock(self._path)
        except StoreUrlInvalid as error:
            raise UrlInvalid(error.reason) from error
        except StoreUnavailable as error:
            raise OwnerNotStarted(error.reason) from error
        if not try_lock(lock):
            with forking.held(lock):
                self._check_shared(read_record(lock))
            return False
        if self._in_thread:
            self._run_thread(lock, deadline)
        else:
            start_process(self._path, lock, idle_s=self._idle_s, deadline=deadline)
        return True

    def _run_thread(self, lock: int, deadline: float) -> None:
        # Only a process that has an owner pays for loading one.
        from penstock.client.embedded.thread_owner import ThreadOwner  # noqa: PLC0415

        with self._keeping:
            self._thread_owner = ThreadOwner(self._path, lock)
            self._thread_owner.start(deadline)

    def _check_owned(self) -> None:
        """Raise `OwnerNotFound` if no process holds the file."""
        message = f"No process owns {self._path}, and this client starts none."
        try:
            lock = os.open(lock_path(self._path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OwnerNotFound(message) from None
        except OSError as error:
            raise OwnerAccessDenied(f"{lock_path(self._path)} cannot be read: {error.strerror}.") from error
        with forking.held(lock), contextlib.suppress(BlockingIOError):
            # Shared, for an instant: whoever starts an owner just now tries again.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            raise OwnerNotFound(message)

    def _check_shared(self, record: Record | None) -> None:
        if record is not None and record.state == "ready" and record.socket is None:
            raise OwnerError(
                f"{self._path} is in use by pid {record.pid}, which does not share it. If that is `penstock serve`, "
                f"connect to its http:// address, or start it with --socket {socket_path(self._path)}."
            )

    # -- after a fork -----------------------------------------------------------------------------

    def descriptors(self) -> Iterable[int]:
        """Return what a forked child must not keep: while it did, the owner would take this process for alive."""
        return [] if self._kept is None else [self._kept.fileno()]

    def forget(self) -> None:
        """Connect anew, in a forked child."""
        self._kept = None
        self._thread_owner = None
        self._keeping = threading.Lock()


def _connect_to(path: str, deadline: float) -> socket.socket | None:
    """Connect to a Unix socket; None if nobody listens there, or if more clients wait there than it lets wait."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_address(path) as address:
            connecting.settimeout(max(0.001, deadline - time.monotonic()))
            connecting.connect(address)
            connecting.settimeout(None)
    except PermissionError as error:
        connecting.close()
        raise OwnerAccessDenied(f"This user may not connect to {path}: {error.strerror}.") from error
    except OSError:
        connecting.close()
        return None
    return connecting
