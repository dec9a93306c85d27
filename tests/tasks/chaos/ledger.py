"""What the tasks of `tests.tasks.chaos.tasks` did: a ledger that only grows, and a table that is fenced by attempt."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

LEDGER = "ledger"
TABLE = "effects.db"


def make_table(folder: Path) -> None:
    """Make the table in which a job has an effect by attempt n only if it had none by attempt n or a later one."""
    connection = sqlite3.connect(folder / TABLE)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE effects (job TEXT PRIMARY KEY, attempt INTEGER, times INTEGER)")
    connection.close()


def read_table(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the attempt that wrote last and how many did, by job."""
    connection = sqlite3.connect(folder / TABLE)
    try:
        return {job: (attempt, times) for job, attempt, times in connection.execute("SELECT * FROM effects")}
    finally:
        connection.close()


def read_ledger(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return the lines of these kinds in the order in which they were written."""
    if not (folder / LEDGER).exists():
        return []
    lines = [json.loads(line) for line in (folder / LEDGER).read_text().splitlines()]
    return [line for line in lines if line["what"] in kinds]
