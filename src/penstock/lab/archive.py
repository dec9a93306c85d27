"""The folder that reports, histories and the index of all runs are kept in."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from penstock.lab.recording import write_history
from penstock.lab.report.index import RunSummary, index_report, summary_of
from penstock.lab.report.page import run_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.lab.run import Run

INDEX = "index.html"
_RUNS = "runs.json"
_KNOBS_MAX = 100


def base_name(scenario: str, seed: int, turned: Mapping[str, str], *, broken_alone: bool) -> str:
    """Return what the files of a run are called: runs with other knobs do not replace each other."""
    knobs = "".join(f"-{name.lower().replace('_', '-')}-{value}" for name, value in turned.items())
    if len(knobs) > _KNOBS_MAX:
        knobs = f"-{sha256(knobs.encode()).hexdigest()[:12]}"
    return f"{scenario}-{seed}{knobs}{'-broken' if broken_alone else ''}"


class ArchiveBroken(ValueError):
    """The list of runs cannot be read. The message names the file."""


class Archive:
    """Keeps the last run of each scenario."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, run: Run, *, coming: Mapping[str, str] | None = None) -> Path:
        """Write the report and the histories of a run, and the index anew; return where the report is.

        `coming` are scenarios that are about to run, with the names of their reports: this one links to them, too.
        The index has no broken variant that ran alone.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        turned = {knob.name: knob.protected for knob in run.knobs if knob.turned}
        base = base_name(run.scenario, run.seed, turned, broken_alone=run.broken_alone)
        kept = {}
        for variant in run.variants:
            name = f"{base}.{variant.name}.jsonl"
            write_history(variant.history, self.folder / name)
            kept[variant.name] = msgspec.structs.replace(variant, history_file=name)
        run = msgspec.structs.replace(
            run,
            protected=kept.get("protected", next(iter(kept.values()))),
            broken=kept.get("broken") if run.broken is not None else None,
        )
        summaries = self.summaries()
        if not run.broken_alone:
            summaries[run.scenario] = summary_of(run, f"{base}.html")
        links = {name: summary.href for name, summary in summaries.items()}
        links |= {name: f"{file}.html" for name, file in (coming or {}).items()}
        report = self.folder / f"{base}.html"
        _write(report, run_report(run, index=INDEX, links=links).encode())
        _write(self.folder / _RUNS, msgspec.json.encode(summaries))
        self.write_index()
        return report

    def write_index(self) -> Path:
        """Write the index of all runs that are kept, and return where it is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        index = self.folder / INDEX
        _write(index, index_report(list(self.summaries().values())).encode())
        return index

    def summaries(self) -> dict[str, RunSummary]:
        """Return what is kept of the last run of each scenario; raises `ArchiveBroken`."""
        try:
            written = (self.folder / _RUNS).read_bytes()
        except FileNotFoundError:
            return {}
        try:
            return msgspec.json.decode(written, type=dict[str, RunSummary])
        except msgspec.MsgspecError as error:
            raise ArchiveBroken(f"{self.folder / _RUNS} cannot be read: {error}") from error


def _write(path: Path, content: bytes) -> None:
    """Replace a file at once, so that nobody reads half of it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_bytes(content)
    new.replace(path)
