"""Ownership of a database file: a lock beside it, a lock in it, and a record that says who owns it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock import __version__
from penstock.domain.clock import SystemClock
from penstock.domain.errors import StoreInUse, StoreUnavailable
from penstock.store.ownership.host import boot_id, check_file_system, file_system_type
from penstock.store.ownership.paths import PRIVATE, canonical_path, lock_path, sharing_of
from penstock.store.ownership.record import Record, age_s, read_record, write_record
from penstock.store.sqlite.migrations import MIGRATIONS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

SCHEMA = len(MIGRATIONS)
"""The newest schema that this version of Penstock knows."""

RENEW_S = 5.0
"""How often an owner renews the time of its record."""

STALE_S = 15.0
"""A record of another kernel that is older than this belongs to an owner that is gone."""

_LOCKED_BYTE = 1 << 62
"""The byte of the database that the second lock is on: far beyond the file's end, and beyond what SQLite locks."""

_FLOCK = "hhqqi0q"
"""struct flock of 64-bit systems: type, whence, start, length, pid."""

_claimed: dict[tuple[int, int], Owner] = {}
"""The files that this process owns, by device and inode. Opening and closing one of them again would drop SQLite's
locks on it, which belong to the process and not to a descriptor."""

_prepared: dict[str, Owner] = {}


def open_lock(path: str) -> int:
    """Open the lock file of a database, making it if it is missing; raise `StoreUnavailable` if that cannot be."""
    name = lock_path(path)
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, sharing_of(path)[0])
    except OSError as error:
        raise StoreUnavailable(f"The store {path} cannot be opened: {error.strerror} ({name}).") from error


def try_lock(lock: int) -> bool:
    """Lock an open lock file, unless another owner has it. Copies of the descriptor share the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Owner:
    """Owns a database file from `take` or `adopt` to `release`. The process's end releases it too, however it ends.

    The lock file is never removed: then two processes could hold two files of the same name. If somebody removes it,
    or reaches the database by another name, the second lock, which is on the database itself, still refuses them.
    """

    def __init__(self, path: str, lock: int) -> None:
        """Own `path`, whose lock file is open and locked as `lock`."""
        self.path = path
        self.number = 0
        """How many owners the store has had, this one included. Known once the store is open."""
        self.store_failure: Callable[[], OSError | None] = lambda: None
        """Returns why the store can no longer be written, if it cannot."""
        self._lock: int | None = lock
        self._database: int | None = None
        self._identity = (0, 0)
        self._renewal: asyncio.TimerHandle | None = None
        self._record = Record(
            state="starting",
            pid=os.getpid(),
            version=__version__,
            schema=SCHEMA,
            boot=boot_id(),
            since_ms=SystemClock().wall_ms(),
        )

    @classmethod
    def take(cls, path: str) -> Owner:
        """Own a database file; raise `StoreInUse`, naming the process, if another one does."""
        path = canonical_path(path)
        lock = open_lock(path)
        if not try_lock(lock):
            record = read_record(lock)
            os.close(lock)
            raise _in_use(path, record)
        return cls(path, lock)

    def prepare(self, *, socket: str) -> None:
        """Let the next opening of the store use this ownership, to share the file through a socket."""
        # A client may know the folder by another name, in a container for example.
        place = Path(socket)
        told = place.name if place.parent == Path(self.path).parent else socket
        self._record = msgspec.structs.replace(self._record, socket=told)
        _prepared[self.path] = self

    @classmethod
    def of_store(cls, path: str) -> Owner:
        """Return the ownership that was prepared for a path, or take it; and claim the file."""
        owner = _prepared.pop(canonical_path(path), None) or cls.take(path)
        try:
            owner.claim()
        except BaseException as error:
            owner.release(error)
            raise
        return owner

    def claim(self) -> None:
        """Take the second lock and write the record; raise `StoreInUse` or `StoreUnavailable` if this cannot be."""
        assert self._lock is not None
        if self._record.socket is not None:
            check_file_system(self.path, file_system_type(str(Path(self.path).parent)))
        last = read_record(self._lock)
        if last is not None and last.boot != self._record.boot and age_s(self._lock) < STALE_S:
            raise StoreInUse(
                f"The store {self.path} is in use on another machine or in another virtual machine (pid {last.pid} "
                "there). Only processes on one kernel can share a SQLite file. If that machine was restarted, try "
                f"again in {STALE_S:g} seconds."
            )
        self._lock_database()
        self._share_mode()
        write_record(self._lock, self._record)

    def _lock_database(self) -> None:
        """Take the second lock. A database that does not exist is made private."""
        with contextlib.suppress(FileNotFoundError):
            if _identity(Path(self.path).stat()) in _claimed:
                raise _in_use(self.path, self._record)
        try:
            database = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except OSError as error:
            raise StoreUnavailable(f"The store {self.path} cannot be opened: {error.strerror}.") from error
        try:
            _lock_byte(database)
        except OSError as error:
            os.close(database)
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                raise StoreInUse(
                    f"The store {self.path} is in use by another process, which has it by another name or whose lock "
                    f"file was removed ({lock_path(self.path)}). Stop that process."
                ) from error
            raise StoreUnavailable(f"The store {self.path} cannot be locked: {error.strerror}.") from error
        self._database = database
        self._identity = _identity(os.fstat(database))
        _claimed[self._identity] = self

    def _share_mode(self) -> None:
        """Give the lock file the database's mode and group, so that whoever may use the one may use the other."""
        assert self._lock is not None
        assert self._database is not None
        wanted, found = os.fstat(self._database), os.fstat(self._lock)
        # Only the owner of a file may change these; another one of the group finds them as they should be.
        with contextlib.suppress(PermissionError):
            if found.st_gid != wanted.st_gid:
                os.fchown(self._lock, -1, wanted.st_gid)
            os.fchmod(self._lock, stat.S_IMODE(wanted.st_mode))

    def keep_renewed(self, loop: asyncio.AbstractEventLoop) -> None:
        """Renew the time of the record from now on, until `release`."""
        if self._lock is not None:
            os.utime(self._lock)
            self._renewal = loop.call_later(RENEW_S, self.keep_renewed, loop)

    def note_open(self) -> None:
        """Say in the record that the store is open, unless that awaits a socket."""
        if self._record.socket is None:
            self.note_ready()

    def note_ready(self) -> None:
        """Say in the record that the store is open and its socket is there."""
        assert self._lock is not None
        self._record = msgspec.structs.replace(self._record, state="ready")
        write_record(self._lock, self._record)

    @property
    def lost(self) -> bool:
        """Whether the path no longer names the file that is owned."""
        try:
            return _identity(Path(self.path).stat()) != self._identity
        except FileNotFoundError:
            return True

    def trouble(self) -> str | None:
        """Return why this process must not go on as the owner, if it must not."""
        if self.lost:
            return f"{self.path} was removed, or names another file now"
        failure = self.store_failure()
        return None if failure is None else f"the log of {self.path} could not be written to the disk: {failure}"

    def release(self, error: BaseException | None = None) -> None:
        """Let another process own the file, after SQLite has closed it. The record keeps the error, if there is one."""
        _prepared.pop(self.path, None)
        if self._renewal is not None:
            self._renewal.cancel()
        if self._database is not None:
            del _claimed[self._identity]
            os.close(self._database)
            self._database = None
        if self._lock is not None:
            failed = msgspec.structs.replace(self._record, state="failed", error=str(error))
            write_record(self._lock, None if error is None else failed)
            # Whoever started this process may have a copy of the descriptor, which would keep the lock.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    def withdraw(self) -> None:
        """Release the file if no store was opened on it. A store that was opened releases it once it is closed."""
        if _prepared.get(self.path) is self:
            self.release()

    def descriptors(self) -> list[int]:
        """Return the open descriptors that hold the locks; a forked child that keeps copies keeps the locks."""
        return [descriptor for descriptor in (self._lock, self._database) if descriptor is not None]


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _lock_byte(database: int) -> None:
    """Lock one byte for as long as the descriptor, or a copy of it, is open."""
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        return  # The lock file has to do.
    fcntl.fcntl(database, command, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0))


def _in_use(path: str, record: Record | None) -> StoreInUse:
    pid = "unknown" if record is None else record.pid
    return StoreInUse(
        f"The store {path} is in use by another process (pid {pid}). "
        "A SQLite store has one owner; stop that process, or use PostgreSQL for several."
    )
