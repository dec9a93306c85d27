"""The store on SQLite. `SqliteStore` is loaded on first use: a client of an owner process needs only the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]


def __getattr__(name: str) -> object:
    if name != "SqliteStore":
        raise AttributeError(name)
    from penstock.store.sqlite.store import SqliteStore  # noqa: PLC0415  # See above.

    return SqliteStore
