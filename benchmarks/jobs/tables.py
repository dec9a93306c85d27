"""The report of `python -m benchmarks jobs` as tables for people."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from benchmarks.jobs.batches import AFTER, BEFORE
from benchmarks.jobs.flood import P99_RATIO_MAX
from benchmarks.report import print_ratio

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.jobs.batches import BatchesReport
    from benchmarks.jobs.contest import JobsTrial
    from benchmarks.jobs.flood import FloodReport
    from benchmarks.jobs.run import JobsReport
    from benchmarks.rounds import Trial


def print_jobs(report: JobsReport, console: Console) -> None:
    """Show what was found."""
    plan = report.plan
    console.print(
        f"{report.machine}, {report.event_loop}; payloads of {plan.payload_bytes:,} bytes, {plan.rounds} rounds in "
        f"turn of about {plan.seconds:g} s",
        highlight=False,
    )
    console.print(_systems(report.systems))
    for each in report.ratios:
        print_ratio(each, console)
    if report.stores:
        console.print(_stores(report.stores))
    for note in report.notes:
        console.print(note, highlight=False, markup=False)


def print_flood(report: FloodReport, console: Console) -> None:
    """Show what was found."""
    plan = report.plan
    console.print(
        f"{report.machine}; payloads of {plan.payload_bytes:,} bytes; queues that take {plan.per_second} jobs/s, "
        f"flooded over {plan.connections} connections, and {plan.steady_per_second} enqueues/s beside it are measured; "
        f"{plan.rounds} rounds of {plan.seconds:g} s",
        highlight=False,
    )
    headings = ("p50 ms calm", "flood", "p99 ms calm", "flood", "p99 ms flooded queue, calm", "flood")
    table = _table("Accepted enqueues, calm and in a flood", (*headings, "accepted/s", "refused/s"))
    costs = _table(
        "The server, calm and in a flood", ("of a core calm", "flood", "MiB before", "peak", "grown calm", "flood")
    )
    for trial in report.trials:
        times = (trial.calm_p50_ms, trial.flood_p50_ms, trial.calm_p99_ms, trial.flood_p99_ms)
        memory = (trial.memory_before_bytes, trial.memory_peak_bytes, trial.calm_grown_bytes, trial.flood_grown_bytes)
        table.add_row(
            trial.name,
            *(f"{value:,.1f}" for value in (*times, trial.own_calm_p99_ms, trial.own_p99_ms)),
            *(f"{value:,.0f}" for value in (trial.accepted_per_s, trial.refused_per_s)),
        )
        costs.add_row(
            trial.name,
            *(f"{value:.2f}" for value in (trial.calm_cpu_share, trial.flood_cpu_share)),
            *(f"{value / 1_048_576:,.1f}" for value in memory),
        )
    console.print(table)
    console.print(costs)
    for trial in report.trials:
        met = trial.p99_ratio <= P99_RATIO_MAX
        refused = ", ".join(f"{count:,} {reason}" for reason, count in sorted(trial.refused.items()))
        console.print(
            f"{trial.name}: p99 of accepted enqueues is {trial.p99_ratio:.2f} times that of calm "
            f"({'within' if met else 'beyond'} {P99_RATIO_MAX:g}; median of rounds "
            f"{statistics.median(trial.p99_ratios):.2f}, {min(trial.p99_ratios):.2f} to {max(trial.p99_ratios):.2f}; "
            f"{trial.flood_samples:,} beside {trial.calm_samples:,} samples), p50 {trial.p50_ratio:.2f} times; "
            f"{trial.times_accepted:.1f} times as much came as was accepted; refused: {refused or 'none'}",
            highlight=False,
        )
    for note in report.notes:
        console.print(note, highlight=False, markup=False)


def print_batches(report: BatchesReport, console: Console) -> None:
    """Show what was found."""
    plan = report.plan
    console.print(
        f"{report.machine}; payloads of {plan.payload_bytes:,} bytes, {plan.rounds} rounds of {plan.jobs:,} jobs each",
        highlight=False,
    )
    table = _table("Processor time of the server, µs a job or poll", (BEFORE, AFTER, "ratio"))
    medians = {(each.store, each.load, each.server): each.median_us for each in report.spent}
    ratios = report.ratios()
    for store, load, server in medians:
        if server == AFTER:
            before = medians.get((store, load, BEFORE))
            table.add_row(
                f"{store}, {load}",
                "" if before is None else f"{before:,.1f}",
                f"{medians[store, load, AFTER]:,.1f}",
                "" if before is None else f"{ratios[store, load]:.2f}",
            )
    console.print(table)
    for note in report.notes:
        console.print(note, highlight=False, markup=False)


def _systems(trials: list[JobsTrial]) -> Table:
    title = "Jobs per second: enqueued; offered, accepted, run and completed; through it all"
    table = _table(title, ("enqueued/s", "worked off/s", "jobs/s", "CPU µs a job, all processes"))
    for trial in trials:
        rates = (trial.enqueued_per_s, trial.worked_per_s, trial.jobs_per_s, trial.cpu_us_per_job)
        table.add_row(trial.name, *(f"{value:,.0f}" for value in rates))
    return table


def _stores(trials: list[Trial]) -> Table:
    table = _table(
        "The stores by themselves: whole lives of jobs", ("jobs/s", "CPU µs a job, callers’ process", "p50 ms")
    )
    for trial in trials:
        ordered = sorted(trial.rounds, key=lambda rate: rate.messages_per_s)
        middle = ordered[len(ordered) // 2]
        values = (trial.messages_per_s, middle.cpu_us_per_message, middle.latency.p50_ms)
        table.add_row(trial.name, *(f"{value:,.0f}" for value in values))
    return table


def _table(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
