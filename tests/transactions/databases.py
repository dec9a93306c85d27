"""A database of the user's own, on SQLite and on PostgreSQL, as tests look at it from outside."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg


class UserDatabase:
    """A database by the URL that `penstock relay` takes. `connect` opens a connection as users have it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite:")

    @contextlib.contextmanager
    def connect(self) -> Iterator[Any]:
        """Yield a DB-API connection. Its transaction is the test's to commit; otherwise it is rolled back."""
        if self.is_sqlite:
            with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:"), timeout=20)) as connection:
                yield connection
        else:
            with contextlib.closing(psycopg.connect(self.url)) as connection:
                yield connection

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own, and return its rows."""
        with self.connect() as connection:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return [tuple(row) for row in rows]

    def count(self, table: str, where: str = "1 = 1") -> int:
        return int(self.run(f"SELECT COUNT(*) FROM {table} WHERE {where}")[0][0])

    @staticmethod
    def sqlite(folder: Path) -> UserDatabase:
        return UserDatabase(f"sqlite:{folder / 'user.db'}")
