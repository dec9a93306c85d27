"""Reports as tables for people and as JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from benchmarks.compare import CompareReport
    from benchmarks.findings import Figure, Section
    from benchmarks.rounds import Ratio, Trial
    from benchmarks.store_run import StoreReport
    from benchmarks.timing import Rate


class Dated(Protocol):
    """A report that tells when its run began."""

    @property
    def started_at(self) -> str:
        """The instant, as in ISO 8601."""


def to_json(report: object) -> str:
    """Write a report so that programs and people can read it."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def save(report: Dated, folder: Path, command: str, *, drawing: str | None = None) -> Path:
    """Write the report of a command into a file of this folder that is named after it and after its instant.

    A drawing goes beside it, as SVG.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{command}-{report.started_at.replace(':', '').replace('-', '')}.json"
    path.write_text(to_json(report) + "\n")
    if drawing is not None:
        path.with_suffix(".svg").write_text(drawing)
    return path


def print_store(report: StoreReport, console: Console) -> None:
    """Show what was found about one store."""
    workload = report.plan.workload
    kind = f"FIFO, {workload.groups:,} groups" if workload.fifo else "standard"
    keys = "with" if workload.attempts else "without"
    console.print(f"[bold]{report.store}[/] ({kind} queue, {report.event_loop})", highlight=False)
    console.print(
        f"{workload.callers} callers, batches of {workload.batch}, bodies of {workload.body_bytes:,} bytes, "
        f"{keys} attempt keys, {report.plan.messages:,} messages a measurement",
        highlight=False,
    )
    table = _rates_table()
    for name, rate in zip(("send", "receive", "delete"), msgspec.structs.astuple(report.phases), strict=True):
        _add_rate(table, name, rate)
    for trial in report.lifecycles:
        _add_trial(table, trial)
    console.print(table)
    for each in report.ratios:
        print_ratio(each, console)
    console.print(f"opening: {report.open_ms:,.0f} ms", highlight=False)
    memory = f"{_mb(report.memory_start_bytes)} before, {_mb(report.memory_peak_bytes)} at the peak"
    if report.backlog is not None:
        backlog = report.backlog
        memory += f", {_mb(backlog.memory_peak_bytes)} with {backlog.messages:,} waiting"
        if backlog.reopen_ms is not None:
            console.print(f"opening with {backlog.messages:,} waiting: {backlog.reopen_ms:,.0f} ms", highlight=False)
        console.print(f"filling: {backlog.fill_per_s:,.0f} messages/s", highlight=False)
    console.print(f"memory of this process: {memory}", highlight=False)
    if not report.swept:
        console.print("The queues are deleted; their messages are left to be swept by a server.", highlight=False)


def print_compare(report: CompareReport, console: Console) -> None:
    """Show what a comparison found."""
    extent = report.extent
    console.print(
        f"{report.machine}, {report.event_loop}; {extent.callers} callers, bodies of {extent.body_bytes:,} bytes, "
        f"{extent.rounds} rounds in turn of {extent.seconds:g} s",
        highlight=False,
    )
    for section in report.sections:
        _print_section(section, console)
    for note in report.notes:
        console.print(note, highlight=False, markup=False)


def _print_section(section: Section, console: Console) -> None:
    console.print()
    table = _rates_table(section.title, section.operations)
    for trial in section.trials:
        _add_trial(table, trial, section.operations)
    console.print(table)
    for each in section.ratios:
        print_ratio(each, console)
    for figure in section.figures:
        print_figure(figure, console)


def _rates_table(title: str | None = None, operations: str | None = None) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("")
    by_operation = () if operations is None else (f"{operations}/s", "CPU µs each")
    for heading in (*by_operation, "messages/s", "CPU µs", "p50 ms", "p90 ms", "p99 ms", "max ms"):
        table.add_column(heading, justify="right")
    return table


def _add_trial(table: Table, trial: Trial, operations: str | None = None) -> None:
    """Show the round that is the median, or the better of the two in the middle."""
    ordered = sorted(trial.rounds, key=lambda rate: rate.messages_per_s)
    _add_rate(table, trial.name, ordered[len(ordered) // 2], operations)


def _add_rate(table: Table, name: str, rate: Rate, operations: str | None = None) -> None:
    latency = rate.latency
    by_operation = (f"{rate.operations_per_s:,.0f}", f"{rate.cpu_us_per_operation:,.1f}")
    table.add_row(
        name,
        *(() if operations is None else by_operation),
        f"{rate.messages_per_s:,.0f}",
        f"{rate.cpu_us_per_message:,.1f}",
        *(f"{value:,.2f}" for value in (latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.max_ms)),
    )


def print_ratio(each: Ratio, console: Console) -> None:
    """Show a ratio, and whether it is what is wanted."""
    _print_judged(ratio_line(each), console, reached=each.reached)


def ratio_line(each: Ratio) -> str:
    """Write a ratio, and what is wanted."""
    wanted = "" if each.wanted is None else f"  (at least {each.wanted:g} is wanted)"
    return f"{each.name}: {each.value:.2f}{wanted}"


def print_figure(figure: Figure, console: Console) -> None:
    """Show a figure, and whether it is what is wanted."""
    _print_judged(figure_line(figure), console, reached=figure.reached)


def figure_line(figure: Figure) -> str:
    """Write a figure, and what is wanted."""
    wanted = "" if figure.wanted_max is None else f"  (at most {figure.wanted_max:,g} is wanted)"
    return f"{figure.name}: {figure.value:,.1f} {figure.unit}{wanted}"


def _print_judged(text: str, console: Console, *, reached: bool) -> None:
    console.print(text, style=None if reached else "bold red", highlight=False)


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
