"""The schema: brought up to date by whichever node comes first, while the others wait.

Tables change by numbered migrations, each of which is run once. Functions are made anew, all of them, after whatever
migrations there were; so who changes one adds a migration, be it an empty one. (Numbers 2 to 6 were functions once.)
"""

from __future__ import annotations

import os
import re
from importlib import resources
from typing import TYPE_CHECKING

from penstock.domain.errors import StoreIncompatible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.store.postgres.pool import Session

SECRET_BYTES = 32
_LOCK = 0x70656E73746F636B
"""Held by the node that migrates: the word penstock."""

_NAME = re.compile(r"(\d{4})_\w+\.sql")

# From the tables themselves: functions such as to_regclass may answer from a cache that is older than our lock.
_STATE = """
SELECT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'penstock') AS schema,
       EXISTS (SELECT FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
                WHERE n.nspname = 'penstock' AND c.relname = 'migration') AS ours
"""
BEGIN = """
CREATE SCHEMA penstock;
CREATE TABLE penstock.migration (
    number int PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""


def functions() -> list[str]:
    """The texts that make, or replace, all functions."""
    found = resources.files(__package__).joinpath("functions").iterdir()
    texts = sorted((file for file in found if file.name.endswith(".sql")), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in texts]


def scripts() -> dict[int, tuple[str, str]]:
    """All migrations: name and text, by number."""
    found = {}
    for file in resources.files(__package__).joinpath("migrations").iterdir():
        match = _NAME.fullmatch(file.name)
        if match is not None:
            found[int(match[1])] = (file.name, file.read_text(encoding="utf-8"))
    return dict(sorted(found.items()))


async def migrate(session: Session) -> bytes:
    """Bring the schema up to date and return the store's secret. Any number of nodes may do this at once.

    Raises `StoreIncompatible` if the schema is newer than this version knows, or is not ours.
    """
    known = scripts()
    if _missing(known, await _applied(session)):
        async with session.transaction():
            await session.fetch("SELECT pg_advisory_xact_lock($1)", _LOCK)
            applied = await _applied(session)
            if applied is None:
                await session.run_script(BEGIN)
            missing = _missing(known, applied)
            for number in missing:
                name, script = known[number]
                await session.run_script(script)
                await session.fetch("INSERT INTO penstock.migration (number, name) VALUES ($1, $2)", number, name)
            if missing:
                for script in functions():
                    await session.run_script(script)
            await session.fetch(
                "INSERT INTO penstock.store (secret) VALUES ($1) ON CONFLICT DO NOTHING", os.urandom(SECRET_BYTES)
            )
    secret: bytes = await session.fetchval("SELECT secret FROM penstock.store")
    return secret


def _missing(known: Iterable[int], applied: set[int] | None) -> list[int]:
    return [number for number in known if applied is None or number not in applied]


async def _applied(session: Session) -> set[int] | None:
    """The numbers of the migrations that were applied; None if there is no schema yet."""
    state = await session.fetchrow(_STATE)
    assert state is not None
    if not state["schema"]:
        return None
    if not state["ours"]:
        raise StoreIncompatible("The database has a schema named penstock that was not made by Penstock.")
    applied = {row["number"] for row in await session.fetch("SELECT number FROM penstock.migration")}
    newest = max(scripts())
    if max(applied, default=0) > newest:
        raise StoreIncompatible(
            f"The database was written by a newer version: its schema is number {max(applied)}, "
            f"and this version knows up to {newest}."
        )
    return applied
