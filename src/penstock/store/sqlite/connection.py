"""The one connection: how it is opened, and what SQLite is asked to promise."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import apsw

from penstock.domain.errors import StoreIncompatible, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from apsw import CArrayBinding

MEMORY = ":memory:"

PAGE_BYTES = 8_192
"""Of a new file. Larger ones make batches cheaper, smaller ones commits of a single message."""

_CACHE_KIB = 65_536
_BUSY_MS = 2_000
_STATEMENTS_CACHED = 200


def connect(path: str) -> apsw.Connection:
    """Open the database file, making it if it is missing; raise `StoreIncompatible` if it is not a database."""
    try:
        db = apsw.Connection(path, statementcachesize=_STATEMENTS_CACHED)
    except apsw.CantOpenError as error:
        message = f"The store {path} cannot be opened: {error}."
        raise StoreUnavailable(message) from error
    try:
        db.set_busy_timeout(_BUSY_MS)
        # Otherwise SQLite plans a query anew whenever other values are bound to it.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        # Only a file that is still empty takes these two from us.
        db.pragma("page_size", PAGE_BYTES)
        db.pragma("auto_vacuum", 0)
        db.pragma("journal_mode", "memory" if path == MEMORY else "wal")
        # A commit does not wait for the disk: `Commits` syncs the log itself, and answers after that.
        db.pragma("synchronous", "normal")
        # The committer moves the log into the database at a time of its choosing.
        db.pragma("wal_autocheckpoint", 0)
        db.pragma("cache_size", -_CACHE_KIB)
        db.pragma("temp_store", "memory")
        db.pragma("foreign_keys", 0)
    except apsw.Error as error:
        db.close()
        raise broken(error, path) from error
    return db


def broken(error: apsw.Error, path: str) -> StoreIncompatible | StoreUnavailable:
    """Say what an error at opening means."""
    if isinstance(error, apsw.NotADBError):
        return StoreIncompatible(f"The file {path} is not a Penstock store: it is not a SQLite database.")
    if isinstance(error, apsw.CorruptError):
        return StoreIncompatible(f"The store {path} is damaged: {error}. Restore it from a backup.")
    return StoreUnavailable(f"The store {path} cannot be used: {error}.")


def array_of(numbers: Iterable[int]) -> CArrayBinding:
    """Bind many integers as one table-valued `carray(?)`. There must be at least one."""
    return apsw.carray(array("q", numbers))
