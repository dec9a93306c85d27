"""`python -m benchmarks client` and `ways`: the client beside other HTTP clients, and each way to the store."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from benchmarks.cli.run import Count, Switch, run_to_end


def bench_client(
    *,
    seconds: Annotated[float, Parameter(validator=Number(gt=0, lte=60))] = 2.0,
    rounds: Count = 5,
    json: Switch = False,
) -> int:
    """Measure the processor time of a single enqueue by Penstock's client, aiohttp and httpx, in about a minute.

    All of them talk to one `penstock serve` on a temporary SQLite file, in turns: 16 async callers each, and one sync
    caller. The other clients send the same bytes and read the answer's JSON.

    Parameters
    ----------
    seconds
        How long each turn takes.
    rounds
        How often each client has its turn; medians count.
    json
        Print the result as JSON.
    """
    from rich.console import Console
    from rich.table import Table

    from benchmarks.client_calls import run_client
    from benchmarks.report import to_json

    report = run_to_end(run_client(seconds, rounds))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
        return 0
    table = Table("client", "callers", "calls/s", "client CPU µs/call", "× ours", "server CPU µs/call")
    for each in report.contenders:
        table.add_row(
            each.name,
            str(each.callers),
            f"{each.calls_per_s:,.0f}",
            f"{each.client_cpu_us:.0f}",
            f"{each.client_cpu_ratio:.2f}",
            f"{each.server_cpu_us:.0f}",
        )
    Console().print(table)
    return 0


def bench_ways(
    *,
    seconds: Annotated[float, Parameter(validator=Number(gt=0, lte=60))] = 2.0,
    rounds: Count = 5,
    json: Switch = False,
) -> int:
    """Measure what a call costs by each way to an SQLite file, client and server together, in about two minutes.

    Callers take jobs through their lives: enqueue, dequeue, accept, complete. The ways take turns: the engine in the
    process, which everything else is compared with; the owner of the file on its Unix socket; a server on TCP; and
    aiohttp in place of Penstock's transport.

    Parameters
    ----------
    seconds
        How long each turn takes.
    rounds
        How often each way has its turn; medians count.
    json
        Print the result as JSON.
    """
    from rich.console import Console
    from rich.table import Table

    from benchmarks.client_ways import run_ways
    from benchmarks.report import to_json

    report = run_to_end(run_ways(seconds, rounds))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # As above.
        return 0
    table = Table("way", "callers", "CPU µs/call", "× engine", "p50 µs/call", "× engine")
    for way in report.ways:
        figures = f"{way.cpu_us:.0f}", f"{way.cpu_ratio:.1f}", f"{way.p50_us:.0f}", f"{way.p50_ratio:.1f}"
        table.add_row(way.name, str(way.callers), *figures)
    Console().print(table)
    return 0
