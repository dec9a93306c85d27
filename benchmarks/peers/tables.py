"""The comparison with the peers as tables, as Markdown and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.drawing import Bar, Bars, draw_bars
from benchmarks.grid import Grid
from benchmarks.peers.findings import PENSTOCK
from benchmarks.peers.loads import LOADS
from benchmarks.report import print_ratio, ratio_line

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.peers.findings import PeersReport, Result, Server
    from benchmarks.peers.loads import Load

_NONE = "–"
_DIGITS_FROM = 100
"""Figures below this are shown with a digit after the point."""


def figure(load: Load, result: Result) -> float:
    """Return the one figure of a result that counts."""
    match load.measure:
        case "requests/s":
            return result.requests_per_s
        case "messages/s":
            return result.messages_per_s
        case "p99 ms":
            return result.p99_ms
        case "MB":
            assert result.memory is not None
            return result.memory.mb_per_100k


def grids(report: PeersReport) -> list[Grid]:
    """Return the tables: rates, processor time, latencies and memory. Those that would be empty are left out."""
    measured = [load for name, load in LOADS.items() if any(each.load == name for each in report.results)]
    rates = [load for load in measured if load.more_is_better]
    found = []
    if rates:
        headings = ["", *(f"{load.heading}, {load.measure}" for load in rates)]
        rows = [[server.title, *(_rate(report, server, load) for load in rates)] for server in report.servers]
        found.append(Grid(title="Rates", headings=headings, rows=rows))
        headings = ["", *(load.heading for load in rates)]
        rows = [[server.title, *(_multiple(report, server, load) for load in rates)] for server in report.servers]
        found.append(Grid(title="Rates as multiples of Penstock's", headings=headings, rows=rows))
        rows = [[server.title, *(_cpu(report, server, load) for load in rates)] for server in report.servers]
        found.append(Grid(title="Processor time of the server, µs a request", headings=headings, rows=rows))
    if len(rates) < len(measured):
        headings = ["", "messages in", "hand-over p50 ms", "p99 ms", "MB per 100,000", "MB in all"]
        rows = [[server.title, server.keeps, *_waiting(report, server)] for server in report.servers]
        found.append(Grid(title="Hand-over to a waiting consumer, and memory", headings=headings, rows=rows))
    return [Grid(title=each.title, headings=each.headings, rows=_without_empty(each.rows)) for each in found]


def print_peers(report: PeersReport, console: Console) -> None:
    """Show what was found."""
    console.print(_introduction(report), highlight=False, markup=False)
    for grid in grids(report):
        console.print()
        console.print(grid.to_rich())
    for each in report.ratios:
        print_ratio(each, console)
    for line in _left_out(report):
        console.print(line, highlight=False, markup=False)


def to_markdown(report: PeersReport) -> str:
    """Write the same for a document."""
    parts = [_introduction(report) + "\n", *(grid.to_markdown() for grid in grids(report))]
    if report.ratios:
        parts.append("".join(f"- {ratio_line(each)}\n" for each in report.ratios))
    if report.missing:
        parts.append("".join(f"- {line}\n" for line in _left_out(report)))
    return "\n".join(parts)


def draw(report: PeersReport) -> str:
    """Draw the same as a picture (SVG), a panel for each load."""
    titles = {server.name: server.title for server in report.servers}
    panels = []
    for name, load in LOADS.items():
        results = [each for each in report.results if each.load == name]
        if results:
            bars = [
                Bar(label=titles[each.server], value=max(0.0, figure(load, each)), ours=each.server == PENSTOCK)
                for each in results
            ]
            better = "more is better" if load.more_is_better else "less is better"
            panels.append(Bars(title=load.title, unit=load.measure, note=better, bars=bars))
        if results and name == "send":
            bars = [
                Bar(label=titles[each.server], value=each.cpu_us_per_request, ours=each.server == PENSTOCK)
                for each in results
            ]
            panels.append(
                Bars(title=f"{load.title}: processor time", unit="µs a request", note="less is better", bars=bars)
            )
    return draw_bars("Penstock beside its peers", _introduction(report), panels)


def _introduction(report: PeersReport) -> str:
    scope = report.scope
    return (
        f"{report.machine}; load by {report.generator}, {scope.connections} connections, bodies of "
        f"{scope.body_bytes:,} bytes, medians of {scope.rounds} rounds in turn of {scope.seconds:g} s, "
        f"{scope.groups:,} FIFO groups, backlog of {scope.backlog:,}; {report.started_at}"
    )


def _left_out(report: PeersReport) -> list[str]:
    lines = []
    for each in report.missing:
        what = each.server if each.load is None else f"{each.server}, {LOADS[each.load].title}"
        lines.append(f"Not measured: {what}: {each.reason}")
    return lines


def _without_empty(rows: list[list[str]]) -> list[list[str]]:
    return [row for row in rows if any(cell not in {_NONE, ""} for cell in row[1:])]


def _rate(report: PeersReport, server: Server, load: Load) -> str:
    result = report.result(server.name, load.name)
    return _NONE if result is None else _number(figure(load, result))


def _multiple(report: PeersReport, server: Server, load: Load) -> str:
    result, ours = report.result(server.name, load.name), report.result(PENSTOCK, load.name)
    return _NONE if result is None or ours is None else f"{figure(load, result) / figure(load, ours):.2f}"


def _cpu(report: PeersReport, server: Server, load: Load) -> str:
    result = report.result(server.name, load.name)
    return _NONE if result is None else _number(result.cpu_us_per_request)


def _waiting(report: PeersReport, server: Server) -> list[str]:
    hand_over, kept = report.result(server.name, "hand-over"), report.result(server.name, "memory")
    cells = [_NONE, _NONE] if hand_over is None else [f"{hand_over.p50_ms:.2f}", f"{hand_over.p99_ms:.2f}"]
    if kept is None or kept.memory is None:
        return [*cells, _NONE, _NONE]
    return [*cells, _number(kept.memory.mb_per_100k), _number(kept.memory.after_bytes / 1e6)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _DIGITS_FROM else f"{value:,.1f}"
