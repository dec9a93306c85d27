"""The comparison of libraries as tables, as Markdown and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.drawing import Bar, Bars, draw_bars
from benchmarks.grid import Grid
from benchmarks.library.catalogue import CLASSES, LIBRARIES
from benchmarks.library.findings import multiple
from benchmarks.library.measures import MEASURES
from benchmarks.report import figure_line, print_figure, print_ratio, ratio_line

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.library.catalogue import Class
    from benchmarks.library.findings import LibraryReport, Result
    from benchmarks.library.measures import Measure

_NONE = "–"
_DIGITS_BELOW = 100
"""Figures below this are shown with a digit after the point."""

_RATES = {
    "enqueue_one": "enqueue one by one",
    "enqueue_callers": "64 callers",
    "enqueue_hundreds": "in hundreds",
    "drain_1": "drain, 1 worker",
    "drain_2": "2 workers",
    "nap_1_async": "1 ms naps, async",
    "nap_1_sync": "sync",
    "nap_10_async": "10 ms naps, async",
    "nap_10_sync": "sync",
}
_COSTS = {
    "start_p50_ms": "start p50 ms",
    "start_p99_ms": "p99 ms",
    "worker_us": "worker µs a job",
    "store_us": "store µs a job",
    "enqueue_one_client_us": "client µs an enqueue",
    "enqueue_one_store_us": "store µs an enqueue",
    "memory_idle_mb": "idle worker MB",
    "memory_busy_mb": "busy MB",
}
_DRAWN = ("callers", "hundreds", "drain_1", "drain_2", "naps_1", "one")


def grids(report: LibraryReport) -> list[Grid]:
    """Return the tables of each class that was measured: multiples, rates, and what it costs."""
    found = []
    for kind, meaning in CLASSES.items():
        results = report.of_class(kind)
        if results:
            multiples = _multiples(report, kind, f"Multiples of the fastest Python peer: {meaning}")
            found += [multiples] if multiples.rows else []
            found.append(_figures(results, _RATES, f"Jobs per second: {meaning}"))
            costs = _figures(results, _COSTS, f"Latency, processor time and memory: {meaning}")
            found.append(_with_losses(costs, results, report))
    return found


def print_library(report: LibraryReport, console: Console) -> None:
    """Show what was found."""
    console.print(_introduction(report), highlight=False, markup=False)
    for grid in grids(report):
        console.print()
        console.print(grid.to_rich())
    for each in report.ratios():
        print_ratio(each, console)
    for figure in report.ceilings():
        print_figure(figure, console)
    for note in report.notes:
        console.print(note, style="bold red", highlight=False, markup=False)


def to_markdown(report: LibraryReport) -> str:
    """Write the same for a document."""
    lines = [ratio_line(each) for each in report.ratios()] + [figure_line(each) for each in report.ceilings()]
    parts = [_introduction(report) + "\n", *(grid.to_markdown() for grid in grids(report))]
    parts += ["".join(f"- {line}\n" for line in each) for each in (lines, report.notes) if each]
    return "\n".join(parts)


def draw(report: LibraryReport) -> str:
    """Draw the rates of the durable class."""
    panels = []
    for name in _DRAWN:
        measure = MEASURES[name]
        bars = [
            Bar(label=LIBRARIES[result.library].title, value=value, ours=LIBRARIES[result.library].ours)
            for result in report.of_class("durable")
            if (value := result.figure(measure)) is not None
        ]
        if bars:
            bars.sort(key=lambda bar: -bar.value)
            panels.append(Bars(title=measure.title, unit="jobs per second", bars=bars))
    return draw_bars("Task libraries that lose nothing they acknowledged", _introduction(report), panels)


def _introduction(report: LibraryReport) -> str:
    titles = {result.library: LIBRARIES[result.library] for result in report.results}
    libraries = ", ".join(f"{library.title} {library.version}" for library in titles.values())
    rounds = f"{report.extent.rounds} rounds in turn" if report.extent.rounds > 1 else "one round"
    return f"{report.machine}; {rounds}, medians; {'; '.join(report.versions)}; {libraries}"


def _multiples(report: LibraryReport, kind: Class, title: str) -> Grid:
    results = {result.library: result for result in report.of_class(kind)}
    columns = [name for name in results if LIBRARIES[name].ours or not LIBRARIES[name].python]
    rows = []
    for measure in MEASURES.values():
        best = report.best_peer(kind, measure)
        if best is None:
            continue
        library, theirs = best
        row = [f"{measure.title}", f"{library.title}, {_number(theirs)}{_unit(measure)}"]
        rows.append(row + [_multiple(results[name], measure, theirs) for name in columns])
    return Grid(
        title=title, headings=["", "fastest Python peer", *(LIBRARIES[name].title for name in columns)], rows=rows
    )


def _multiple(result: Result, measure: Measure, theirs: float) -> str:
    ours = result.figure(measure)
    return _NONE if ours is None else f"{multiple(measure, ours, theirs):.2f}"


def _unit(measure: Measure) -> str:
    return measure.unit if measure.unit == "/s" else f" {measure.unit}"


def _figures(results: list[Result], columns: dict[str, str], title: str) -> Grid:
    rows = [[_title(result), *(_number(result.median(key)) for key in columns)] for result in results]
    return Grid(title=title, headings=["", *columns.values()], rows=rows)


def _with_losses(grid: Grid, results: list[Result], report: LibraryReport) -> Grid:
    wait_s = f"{report.extent.kill_wait_seconds:g} s"
    headings = [*grid.headings, "lost", "doubled", f"missing {wait_s} after kill -9", "doubled by it"]
    rows = [row + _losses(result) for row, result in zip(grid.rows, results, strict=True)]
    return Grid(title=grid.title, headings=headings, rows=rows)


def _losses(result: Result) -> list[str]:
    killed = result.killed
    after = [_NONE, _NONE] if killed is None else [f"{killed.missing:,}", f"{killed.doubled:,}"]
    return [f"{result.lost:,}", f"{result.doubled:,}", *after]


def _title(result: Result) -> str:
    library = LIBRARIES[result.library]
    return library.title if library.ours else f"{library.title} ({library.keeps})"


def _number(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value >= _DIGITS_BELOW else f"{value:,.1f}"
