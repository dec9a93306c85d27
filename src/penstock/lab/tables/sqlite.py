"""The tables and the ledger in SQLite files, which several processes share."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import Call

if TYPE_CHECKING:
    from pathlib import Path

BUSY_S_MAX = 30.0
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def connect(path: Path | str) -> sqlite3.Connection:
    """Open a file for statements that commit by themselves, from any thread but only one at a time."""
    return sqlite3.connect(path, timeout=BUSY_S_MAX, isolation_level=None, check_same_thread=False)


def create_status(path: Path | str, name: str) -> None:
    """Make a table `message_status`, empty."""
    with connect_and_close(path) as database:
        database.execute(
            f"CREATE TABLE {_quoted(name)} "
            "(message_id TEXT PRIMARY KEY, status TEXT NOT NULL, attempts INTEGER NOT NULL) STRICT"
        )


def create_side_effects(path: Path | str, name: str) -> None:
    """Make a table `message_side_effects`, empty."""
    with connect_and_close(path) as database:
        database.execute(f"CREATE TABLE {_quoted(name)} (message_id TEXT PRIMARY KEY) STRICT")


def create_tables(path: Path | str, *, status: str, side_effects: str) -> None:
    """Make both tables, empty."""
    create_status(path, status)
    create_side_effects(path, side_effects)


def key_of(path: Path | str, name: str) -> str | None:
    """Return the key of a table, as DynamoDB says it: `HASH message_id`; None if there is no such table."""
    with connect_and_close(path) as database:
        columns = database.execute("SELECT name, pk FROM pragma_table_info(?)", (name,)).fetchall()
    if not columns:
        return None
    key = [column for column, place in sorted(columns, key=lambda one: int(one[1])) if place]
    return ", ".join(f"{'RANGE' if place else 'HASH'} {column}" for place, column in enumerate(key)) or "none"


def empty_table(path: Path | str, name: str) -> None:
    """Remove all that a table holds."""
    with connect_and_close(path) as database:
        database.execute(f"DELETE FROM {_quoted(name)}")  # noqa: S608 - the name is checked


def drop_tables(path: Path | str, *names: str) -> None:
    """Remove tables that are there."""
    with connect_and_close(path) as database:
        for name in names:
            database.execute(f"DROP TABLE IF EXISTS {_quoted(name)}")


def remove_file_if_empty(path: Path) -> None:
    """Remove a file without tables."""
    if not path.exists():
        return
    with connect_and_close(path) as database:
        empty = not database.execute("SELECT 1 FROM sqlite_master").fetchone()
    if empty:
        path.unlink()


class connect_and_close:  # noqa: N801 - used as a function
    """Open a file for the length of a block."""

    def __init__(self, path: Path | str) -> None:
        self._database = connect(path)

    def __enter__(self) -> sqlite3.Connection:
        return self._database

    def __exit__(self, *_: object) -> None:
        self._database.close()


class SqliteStatus:
    """`message_status` in a file."""

    def __init__(self, path: Path | str, table: str) -> None:
        self._database = connect(path)
        self._table = _quoted(table)

    def mark_started(self, message_id: str) -> int:
        found = self._database.execute(
            f"INSERT INTO {self._table} VALUES (?, 'STARTED', 1) "  # noqa: S608 - the name is checked
            "ON CONFLICT (message_id) DO UPDATE SET attempts = attempts + 1 RETURNING attempts",
            (message_id,),
        ).fetchall()
        return int(found[0][0])

    def mark_completed(self, message_id: str) -> None:
        self._database.execute(
            f"INSERT INTO {self._table} VALUES (?, 'COMPLETED', 1) "  # noqa: S608 - as above
            "ON CONFLICT (message_id) DO UPDATE SET status = 'COMPLETED'",
            (message_id,),
        )

    def close(self) -> None:
        self._database.close()


class SqliteSideEffects:
    """`message_side_effects` in a file."""

    def __init__(self, path: Path | str, table: str) -> None:
        self._database = connect(path)
        self._table = _quoted(table)

    def exists(self, key: str) -> bool:
        found = self._database.execute(f"SELECT 1 FROM {self._table} WHERE message_id = ?", (key,))  # noqa: S608 - as above
        return found.fetchone() is not None

    def write(self, key: str, *, conditional: bool) -> bool:
        written = self._database.execute(f"INSERT OR IGNORE INTO {self._table} VALUES (?)", (key,)).rowcount  # noqa: S608 - as above
        return written == 1 or not conditional

    def close(self) -> None:
        self._database.close()


class SqliteLedger:
    """The ledger in a file of its own: a table without any key."""

    def __init__(self, path: Path | str) -> None:
        self._database = connect(path)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS ledger "
            "(message TEXT NOT NULL, t_ms INTEGER NOT NULL, process TEXT NOT NULL, key TEXT) STRICT"
        )

    def append(self, call: Call) -> None:
        self._database.execute(
            "INSERT INTO ledger VALUES (?, ?, ?, ?)", (call.message, call.t_ms, call.process, call.key)
        )

    def calls(self) -> tuple[Call, ...]:
        """Return all calls in the order they were made."""
        rows = self._database.execute("SELECT message, t_ms, process, key FROM ledger ORDER BY rowid")
        return tuple(Call(message=row[0], t_ms=row[1], process=row[2], key=row[3]) for row in rows)

    def close(self) -> None:
        self._database.close()


def _quoted(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a table: 1 to 255 letters, digits and _.-")
    return f'"{name}"'
