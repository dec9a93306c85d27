"""The mark by which a process owns a database file, so that a second one is refused."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.domain.errors import StoreInUse, StoreUnavailable


class Owner:
    """Holds `PATH.lock` for as long as the store is open.

    The operating system lets go of it when the process ends, however it ends. The file stays, as removing it would let
    two processes hold two files of the same name.
    """

    def __init__(self, path: str) -> None:
        """Take the file, or raise `StoreInUse` naming the process that has it."""
        lock = Path(path + ".lock")
        try:
            self._file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            message = f"The store {path} cannot be opened: {error.strerror} ({lock})."
            raise StoreUnavailable(message) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            message = (
                f"The store {path} is in use by another process (pid {pid or 'unknown'}). "
                "A SQLite store has one owner; stop that process, or use PostgreSQL for several."
            )
            raise StoreInUse(message) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another process open the store."""
        os.ftruncate(self._file, 0)
        os.close(self._file)
