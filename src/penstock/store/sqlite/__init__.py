"""The store in one SQLite file: group commit, one owner, and bodies kept apart from what changes."""

from penstock.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
