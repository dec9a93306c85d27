"""What the tables of jobs hold, seen past the store."""

from __future__ import annotations

from pathlib import Path

import apsw
import asyncpg

from tests.support.stores import Opener, PostgresDatabase

TABLES = (
    "job",
    "job_content",
    "job_tag",
    "job_attempt",
    "job_event",
    "job_key",
    "job_lane",
    "job_breaker",
    "job_bucket",
    "job_operation",
    "job_removed",
    "job_spent",
    "job_gather",
    "job_gather_member",
)


async def rows_left(opener: Opener, folder: Path) -> dict[str, int]:
    """Count the rows of each table that has any. Queues, their counters and schedules are left out."""
    counts: dict[str, int] = {}
    if isinstance(opener, PostgresDatabase):
        connection = await asyncpg.connect(opener.dsn)
        for table in TABLES:
            counts[table] = await connection.fetchval(f"SELECT count(*) FROM penstock.{table}")
        await connection.close()
    else:
        db = apsw.Connection(str(folder / "penstock.db"), flags=apsw.SQLITE_OPEN_READONLY)
        for table in TABLES:
            counts[table] = len(db.execute(f"SELECT 1 FROM {table}").fetchall())
        db.close()
    return {table: number for table, number in counts.items() if number}
