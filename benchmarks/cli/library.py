"""`python -m benchmarks library`: Penstock's task library beside others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from benchmarks.cli.run import Switch, run_to_end

LibraryName = Literal[
    "penstock",
    "penstock-embedded",
    "penstock-postgres",
    "celery",
    "dramatiq",
    "rq",
    "taskiq",
    "arq",
    "saq",
    "huey",
    "procrastinate",
    "pgqueuer",
    "river",
]
ClassName = Literal["durable", "defaults"]


def bench_library(  # noqa: PLR0913 # Each is one option of the command.
    *,
    only: Annotated[list[LibraryName] | None, Parameter(consume_multiple=True, negative="")] = None,
    class_: Annotated[ClassName | None, Parameter(name="--class")] = None,
    quick: Switch = False,
    everyone: Switch = False,
    rounds: Annotated[int | None, Parameter(validator=Number(gte=1, lte=50))] = None,
    seconds: Annotated[float | None, Parameter(validator=Number(gt=0, lte=60))] = None,
    output: Path = Path("bench-results"),
    markdown: Path | None = None,
    json: Switch = False,
) -> int:
    """Measure Penstock's task library and its peers, side by side and in turns, in about a quarter of an hour.

    Penstock over HTTP on SQLite and on PostgreSQL, and embedded; Celery, Dramatiq and Procrastinate in every round; RQ,
    Taskiq, Arq, SAQ, Huey, PgQueuer and River in one round. Each enqueues one by one, from 64 callers and in hundreds,
    drains tasks that do nothing with one and two workers, runs tasks that nap with 20 slots, and starts tasks that come
    at a steady rate. Every task leaves its number in a ledger, from which lost and doubled ones are counted; in the end
    a worker of each is killed in the middle of its work.

    There are two classes. In *durable*, nothing that was acknowledged may be lost: Redis syncs each write, and workers
    acknowledge late. In *defaults*, everything is as it comes. Penstock and the libraries on PostgreSQL are durable as
    they come, so they are measured once. The peers are fetched once, by version, with pip and go; redis-server has to
    be on the PATH, or is installed by root on Debian. What cannot be run is named with its reason.

    Parameters
    ----------
    only
        Which libraries take part. Left out, all of them.
    class_
        Which class is measured. Left out, both.
    quick
        Measure the durable class, and so little that it only shows that everything works: a minute or two.
    everyone
        Measure all libraries in every round: about twice as long.
    rounds
        How often the libraries that take part in every round are measured; medians count.
    seconds
        How long each drain takes, about.
    output
        The folder where the result is kept, as JSON and as a plot (SVG).
    markdown
        A file to write the tables into, as Markdown.
    json
        Print the result as JSON, instead of tables.
    """
    import msgspec
    from rich.console import Console

    from benchmarks.library.catalogue import CLASSES
    from benchmarks.library.findings import Extent
    from benchmarks.library.run import run_library
    from benchmarks.library.tables import draw, print_library, to_markdown
    from benchmarks.progress import Narrator
    from benchmarks.report import save, to_json

    extent = Extent.quick() if quick else Extent()
    extent = msgspec.structs.replace(
        extent, rounds=rounds or extent.rounds, seconds=seconds or extent.seconds, everyone=everyone
    )
    kinds: list[ClassName] = list(CLASSES) if class_ is None else [class_]
    if quick and class_ is None:
        kinds = ["durable"]
    names: list[str] | None = None if only is None else list(only)
    narrator = Narrator()
    report = run_to_end(run_library(names, kinds, extent, narrator))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_library(report, Console())
    if markdown is not None:
        markdown.write_text(to_markdown(report))
    narrator.say(f"Kept in {save(report, output, 'library', drawing=draw(report))}, with a plot beside it")
    return 0
