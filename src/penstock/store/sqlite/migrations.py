"""Brings a database file to the schema that this version works with, or refuses it."""

from __future__ import annotations

import os
from importlib.resources import files
from typing import TYPE_CHECKING

from penstock.domain.errors import StoreIncompatible

if TYPE_CHECKING:
    import apsw

APPLICATION_ID = 0x50454E53
"""Marks a file as ours: PENS, in the header that `file(1)` reads."""

MIGRATIONS = (
    "schema.sql",
    "jobs_schema.sql",
    "schema_3.sql",
    "schema_4.sql",
    "schema_5.sql",
    "schema_6.sql",
    "schema_7.sql",
    "schema_8.sql",
    "schema_9.sql",
    "schema_10.sql",
    "schema_11.sql",
)
"""The steps, in order: the file at index N brings the schema from version N to N + 1."""

TEMPORARY = "temporary.sql"
"""Tables that live as long as the connection."""

_SECRET_BYTES = 32


def migrate(db: apsw.Connection, path: str) -> None:
    """Run the steps that the file lacks, in one transaction, and make what the connection keeps for itself.

    Raises `StoreIncompatible` for a newer or foreign file.
    """
    version: int = db.pragma("user_version")
    application_id: int = db.pragma("application_id")
    empty = not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    if application_id != APPLICATION_ID and not (empty and application_id == 0 and version == 0):
        message = f"The file {path} is a SQLite database, but not a Penstock store."
        raise StoreIncompatible(message)
    if version > len(MIGRATIONS):
        message = (
            f"The store {path} was written by a newer version of Penstock "
            f"(schema {version}; this version knows {len(MIGRATIONS)}). Upgrade Penstock to open it."
        )
        raise StoreIncompatible(message)
    if version < len(MIGRATIONS):
        _upgrade(db, version)
    db.execute(_text(TEMPORARY))


def _upgrade(db: apsw.Connection, version: int) -> None:
    with db:
        for name in MIGRATIONS[version:]:
            db.execute(_text(name))
        db.execute(
            "INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?), ('next_partition', 1)",
            (os.urandom(_SECRET_BYTES),),
        )
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", len(MIGRATIONS))


def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def read_secret(db: apsw.Connection) -> bytes:
    """Read the key that was made with the store."""
    secret = db.execute("SELECT value FROM meta WHERE name = 'secret'").get
    assert isinstance(secret, bytes)
    assert len(secret) == _SECRET_BYTES
    return secret


def next_owner_number(db: apsw.Connection) -> int:
    """Count the owners that the store has had, the present one included."""
    with db:
        number = db.execute(
            "INSERT INTO meta (name, value) VALUES ('owner_number', 1) "
            "ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value"
        ).get
    assert isinstance(number, int)
    return number
