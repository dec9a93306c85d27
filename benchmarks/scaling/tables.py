"""Growth as tables, as Markdown and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.drawing import Line, Lines, draw_lines, short
from benchmarks.grid import Grid
from benchmarks.report import figure_line, print_figure
from benchmarks.scaling.findings import FLAT_SHARE_WANTED

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.findings import Figure
    from benchmarks.scaling.findings import Axis, Flood, ScalingReport


def grids(report: ScalingReport) -> list[tuple[Grid, list[Figure]]]:
    """Return a table for each axis and for the flood, with the figures that belong to it."""
    found = [(_axis_grid(axis), axis.figures) for axis in report.axes]
    if report.flood is not None:
        found.append((_flood_grid(report.flood), report.flood.figures))
    return found


def print_scaling(report: ScalingReport, console: Console) -> None:
    """Show what was found."""
    console.print(_introduction(report), highlight=False, markup=False)
    for grid, figures in grids(report):
        console.print()
        console.print(grid.to_rich())
        for figure in figures:
            print_figure(figure, console)
    for line in _left_out(report):
        console.print(line, highlight=False, markup=False)


def to_markdown(report: ScalingReport) -> str:
    """Write the same for a document."""
    parts = [_introduction(report) + "\n"]
    for grid, figures in grids(report):
        parts.append(grid.to_markdown())
        if figures:
            parts.append("".join(f"- {figure_line(figure)}\n" for figure in figures))
    if report.missing:
        parts.append("".join(f"- {line}\n" for line in _left_out(report)))
    return "\n".join(parts)


def draw(report: ScalingReport) -> str:
    """Draw the same as a picture (SVG), a panel for each axis and two for the flood."""
    panels = []
    for axis in report.axes:
        lines = [
            Line(label="requests/s", values=[axis.share(point) for point in axis.points]),
            Line(label="processor time", values=[axis.cpu_share(point) for point in axis.points]),
        ]
        panels.append(
            Lines(
                title=axis.title,
                unit="share of the best",
                places=[short(point.amount) for point in axis.points],
                lines=lines,
                level=FLAT_SHARE_WANTED if axis.flat else None,
            )
        )
    if report.flood is not None:
        windows = report.flood.windows
        places = [short(window.waiting) for window in windows]
        latencies = [window.rate.latency for window in windows]
        panels.append(
            Lines(
                title="flood of sends: latency, by messages waiting",
                unit="ms",
                places=places,
                lines=[
                    Line(label="p50", values=[latency.p50_ms for latency in latencies]),
                    Line(label="p99", values=[latency.p99_ms for latency in latencies]),
                ],
            )
        )
        memory = [window.memory_bytes / 1e6 for window in windows]
        panels.append(
            Lines(
                title="flood of sends: memory, by messages waiting",
                unit="MB",
                places=places,
                lines=[Line(label="resident set", values=[*memory])],
            )
        )
    return draw_lines("How cost grows", _introduction(report), panels)


def _axis_grid(axis: Axis) -> Grid:
    headings = [axis.title, "requests/s", "of the best", "CPU µs a request", "of the least", "p99 ms"]
    database = any(point.database_cpu_us is not None for point in axis.points)
    if database:
        headings.append("database CPU µs")
    rows = []
    for point in axis.points:
        row = [
            f"{point.amount:,}",
            f"{point.requests_per_s:,.0f}",
            f"{axis.share(point):.2f}",
            f"{point.cpu_us:,.1f}",
            f"{axis.cpu_share(point):.2f}",
            f"{point.p99_ms:,.1f}",
        ]
        rows.append(row if point.database_cpu_us is None else [*row, f"{point.database_cpu_us:,.1f}"])
    wanted = f", each at least {FLAT_SHARE_WANTED:g} of the best is wanted" if axis.flat else ""
    return Grid(title=f"Lifecycles by {axis.title}{wanted}", headings=headings, rows=rows)


def _flood_grid(flood: Flood) -> Grid:
    rows = [
        [
            f"{window.waiting:,}",
            f"{window.rate.operations_per_s:,.0f}",
            f"{window.rate.cpu_us_per_operation:,.1f}",
            f"{window.rate.latency.p50_ms:,.1f}",
            f"{window.rate.latency.p99_ms:,.1f}",
            f"{window.memory_bytes / 1e6:,.0f}",
        ]
        for window in flood.windows
    ]
    headings = ["waiting", "sends/s", "CPU µs a send", "p50 ms", "p99 ms", "memory MB"]
    return Grid(title="A flood of sends with slow consumers", headings=headings, rows=rows)


def _introduction(report: ScalingReport) -> str:
    scope = report.scope
    return (
        f"{report.machine}; load by {report.generator}, {scope.connections} connections, bodies of "
        f"{scope.body_bytes:,} bytes, medians of {scope.rounds} rounds in turn of {scope.seconds:g} s; "
        f"{report.started_at}"
    )


def _left_out(report: ScalingReport) -> list[str]:
    return [f"Not measured: {each.name}: {each.reason}" for each in report.missing]
