"""Records in a SQLite file, which any number of processes of one machine share."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from penstock.client.errors import RecordsInvalid, RecordsUnavailable, WrongProcess
from penstock.client.idempotency.records import (
    COMPLETED,
    TABLE,
    Completed,
    Held,
    Mismatched,
    Started,
    Taken,
)
from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.domain.clock import Clock

MEMORY = ":memory:"
BUSY_MS = 5_000
"""How long to wait for other processes that write."""
SWEEP_EACH = 64
SWEEP_LIMIT = 256
"""One in 64 starts removes up to 256 expired records, so that they never pile up."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Of the clocks that never step, the one that goes on while the machine sleeps, where there is one.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_COLUMNS = {
    "key": 1,
    "state": 0,
    "owner": 0,
    "attempts": 0,
    "boot": 0,
    "lease_until_ms": 0,
    "expires_at_ms": 0,
    "fingerprint": 0,
    "result": 0,
}
"""Each column, and its place in the primary key."""

_CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    key TEXT PRIMARY KEY NOT NULL,
    state TEXT NOT NULL,
    owner TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    -- The lease is measured by the clock of this boot, which nobody sets. After another boot, no holder is left.
    boot TEXT NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    result BLOB
) STRICT, WITHOUT ROWID
"""
_CREATE_INDEX = "CREATE INDEX IF NOT EXISTS {table_expiry} ON {table} (expires_at_ms)"
_START = """
INSERT INTO {table} AS had (key, state, owner, attempts, boot, lease_until_ms, expires_at_ms, fingerprint, result)
VALUES (:key, 'STARTED', :owner, 1, :boot, :elapsed_ms + :lease_ms, :wall_ms + :ttl_ms, :fingerprint, NULL)
ON CONFLICT (key) DO UPDATE SET
    state = 'STARTED',
    owner = excluded.owner,
    attempts = CASE
        WHEN had.expires_at_ms <= :wall_ms THEN 1
        WHEN had.owner = excluded.owner THEN had.attempts
        ELSE had.attempts + 1
    END,
    boot = excluded.boot,
    lease_until_ms = excluded.lease_until_ms,
    expires_at_ms = excluded.expires_at_ms,
    fingerprint = CASE
        WHEN had.expires_at_ms <= :wall_ms OR had.fingerprint = '' THEN excluded.fingerprint
        ELSE had.fingerprint
    END,
    result = NULL
WHERE had.expires_at_ms <= :wall_ms
   OR (had.state = 'STARTED'
       AND (had.owner = excluded.owner OR had.boot <> excluded.boot OR had.lease_until_ms <= :elapsed_ms)
       AND (had.fingerprint = '' OR excluded.fingerprint = '' OR had.fingerprint = excluded.fingerprint))
RETURNING attempts
"""
_LOOK = """
SELECT state, owner, attempts, lease_until_ms - :elapsed_ms, expires_at_ms - :wall_ms, fingerprint, result
FROM {table} WHERE key = :key
"""
_RENEW = """
UPDATE {table} SET boot = :boot, lease_until_ms = :elapsed_ms + :lease_ms, expires_at_ms = :wall_ms + :ttl_ms
WHERE key = :key AND owner = :owner AND state = 'STARTED'
"""
_COMPLETE = """
UPDATE {table} SET state = 'COMPLETED', result = :result, lease_until_ms = 0, expires_at_ms = :wall_ms + :ttl_ms
WHERE key = :key AND owner = :owner AND state = 'STARTED'
"""
_RELEASE = """
UPDATE {table} SET owner = '', lease_until_ms = 0 WHERE key = :key AND owner = :owner AND state = 'STARTED'
"""
_FORGET = "DELETE FROM {table} WHERE key = :key"
_SWEEP = "DELETE FROM {table} WHERE key IN (SELECT key FROM {table} WHERE expires_at_ms <= :wall_ms LIMIT :limit)"


class SQLiteRecords:
    """Records in a table of a SQLite file, which is made if it is missing.

    Leases are measured by the machine's clock since it started, which nobody sets. A connection is open in one process
    at a time: it is closed before a fork, and opened again where it is needed.
    """

    def __init__(self, path: str | os.PathLike[str], *, table: str = TABLE, clock: Clock | None = None) -> None:
        self._path = os.fspath(path)
        self._quoted = _quote(table)
        self._expiry = _quote(f"{table}_expiry")
        self._table = table
        self._clock = clock or SystemClock()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._db: apsw.Connection | None = None
        self._starts = 0
        _all.add(self)

    def __repr__(self) -> str:
        return f"SQLiteRecords({self._path!r})"

    def create(self) -> None:
        """Create the file and the table if they are missing, and check the table."""
        with self._using():
            pass

    def check(self) -> None:
        """As `create`."""
        self.create()

    def start(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int, fingerprint: str) -> Taken:
        """Take a key if nobody holds it and it is not completed."""
        asked = {"key": key, "owner": owner, "lease_ms": lease_ms, "ttl_ms": ttl_ms, "fingerprint": fingerprint}
        with self._using() as db, self._transaction(db):
            values = asked | self._times()
            rows = self._run(db, _START, values)
            if rows:
                taken: Taken = Started(rows[0][0])
            else:
                [row] = self._run(db, _LOOK, values)
                taken = _told(row, fingerprint)
            self._starts += 1
            if self._starts % SWEEP_EACH == 1:
                self._run(db, _SWEEP, {"wall_ms": values["wall_ms"], "limit": SWEEP_LIMIT})
        return taken

    def renew(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int) -> bool:
        """Extend a lease."""
        return self._change(_RENEW, {"key": key, "owner": owner, "lease_ms": lease_ms, "ttl_ms": ttl_ms}) > 0

    def complete(self, key: str, owner: str, result: bytes | None, *, ttl_ms: int) -> bool:
        """Record a result."""
        values = {"key": key, "owner": owner, "result": result, "ttl_ms": ttl_ms}
        with self._using() as db, self._transaction(db):
            values |= self._times()
            self._run(db, _COMPLETE, values)
            if db.changes():
                return True
            rows = self._run(db, _LOOK, values)
        return bool(rows) and rows[0][:2] == (COMPLETED, owner)

    def release(self, key: str, owner: str) -> bool:
        """End a lease."""
        return self._change(_RELEASE, {"key": key, "owner": owner}) > 0

    def forget(self, key: str) -> None:
        """Remove a record."""
        self._change(_FORGET, {"key": key})

    def sweep(self, limit: int) -> int:
        """Remove expired records."""
        return self._change(_SWEEP, {"limit": limit})

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    # -- forks ------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Let nobody use the connection until the fork is over, and close it: a child must have no copy of it."""
        self._lock.acquire()
        if self._path != MEMORY:
            self._disconnect()

    def after_fork(self) -> None:
        """Go on, in the parent and in the child."""
        self._lock.release()

    # -- the connection ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _using(self) -> Iterator[apsw.Connection]:
        with self._lock, self._translated():
            if self._path == MEMORY and self._pid != os.getpid():
                raise WrongProcess("Records in :memory: belong to the process that made them. Name a file to share.")
            if self._db is None:
                self._db = self._connect()
            yield self._db

    def _disconnect(self) -> None:
        if self._db is not None:
            db, self._db = self._db, None
            db.close()

    def _connect(self) -> apsw.Connection:
        give_up_at = time.monotonic() + BUSY_MS / 1_000
        while True:
            db = apsw.Connection(self._path)
            try:
                self._prepare(db)
            except BaseException as error:
                db.close()
                # Not all that opening does waits by itself for others that open the file.
                if not isinstance(error, apsw.BusyError) or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.01)
            else:
                return db

    def _prepare(self, db: apsw.Connection) -> None:
        db.set_busy_timeout(BUSY_MS)
        db.pragma("journal_mode", "wal")
        # A record of a start that a power failure takes away would let an effect happen twice.
        db.pragma("synchronous", "full")
        with self._transaction(db):
            self._run(db, _CREATE, {})
            found = {row[1]: row[5] for row in db.execute(f"PRAGMA table_info({self._quoted})")}
            if {name: found.get(name) for name in _COLUMNS} != _COLUMNS:
                raise RecordsInvalid(
                    f"The table {self._table} in {self._path} is not one of idempotency records: it needs the columns "
                    f"{', '.join(_COLUMNS)}, and key alone as its primary key."
                )
            self._run(db, _CREATE_INDEX, {})

    @contextlib.contextmanager
    def _transaction(self, db: apsw.Connection) -> Iterator[None]:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise RecordsInvalid(f"The file {self._path} is not a SQLite database, or is damaged: {error}.") from error
        except apsw.BusyError as error:
            raise RecordsUnavailable(f"The file {self._path} is locked by another process: {error}.") from error
        except apsw.Error as error:
            raise RecordsUnavailable(f"The file {self._path} cannot be used: {error}.") from error

    def _run(self, db: apsw.Connection, statement: str, values: dict[str, Any]) -> list[Any]:
        made = statement.replace("{table}", self._quoted).replace("{table_expiry}", self._expiry)
        return list(db.execute(made, values))

    def _change(self, statement: str, values: dict[str, Any]) -> int:
        with self._using() as db, self._transaction(db):
            self._run(db, statement, values | self._times())
            return db.changes()

    def _times(self) -> dict[str, int | str]:
        pinned_ms = self._clock.pinned_ms
        if pinned_ms is not None:
            return {"boot": "", "elapsed_ms": pinned_ms, "wall_ms": pinned_ms}
        wall_ms = self._clock.wall_ms()
        boot = _boot()
        # Where a start of the machine cannot be told from another, only the time of day goes on over both.
        return {
            "boot": boot,
            "elapsed_ms": time.clock_gettime_ns(_ELAPSED) // 1_000_000 if boot else wall_ms,
            "wall_ms": wall_ms,
        }


def _told(row: tuple[Any, ...], fingerprint: str) -> Taken:
    state, _, attempts, lease_ms, left_ms, known, result = row
    if known and fingerprint and known != fingerprint:
        return Mismatched()
    if state == COMPLETED:
        return Completed(result, attempts, left_ms, known)
    return Held(lease_ms)


def _quote(name: str) -> str:
    if not name or "\x00" in name:
        raise ValueError(f"A table has a name, and {name!r} is none.")
    return '"' + name.replace('"', '""') + '"'


@functools.cache
def _boot() -> str:
    """Return the id of the running kernel, the same in all its containers; empty where there is none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


# A connection must not be in two processes: SQLite would take the locks of one for those of the other.
_all: weakref.WeakSet[SQLiteRecords] = weakref.WeakSet()
_forking: list[SQLiteRecords] = []
_turn = threading.Lock()
"""Held during a fork: threads that fork at the same time take turns."""


def lock_for_fork() -> None:
    """Lock all records, and close their connections."""
    _turn.acquire()
    for records in list(_all):
        records.before_fork()
        _forking.append(records)


def unlock_after_fork() -> None:
    """Go on, in the parent and in the child."""
    while _forking:
        _forking.pop().after_fork()
    _turn.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lock_for_fork, after_in_parent=unlock_after_fork, after_in_child=unlock_after_fork)
