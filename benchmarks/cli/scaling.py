"""`python -m benchmarks scaling`: how the cost of a request grows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from benchmarks.cli.run import Switch, run_to_end

AxisName = Literal["queues", "backlog", "connections", "sizes", "nodes", "small-nodes", "flood"]


def bench_scaling(
    *,
    axis: Annotated[list[AxisName] | None, Parameter(consume_multiple=True, negative="")] = None,
    quick: Switch = False,
    rounds: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    seconds: Annotated[float | None, Parameter(validator=Number(gt=0, lte=60))] = None,
    own_generator: Switch = False,
    output: Path = Path("bench-results"),
    markdown: Path | None = None,
    json: Switch = False,
) -> int:
    """Measure how the cost of a request grows, in about ten minutes and with 3 GB of temporary files.

    Lifecycles (send, receive, delete) over HTTP on durable SQLite, at several amounts in turn: 1 to 10,000 queues,
    1,000 to 1,000,000 waiting messages (and the memory these take), 16 to 1,000 connections, messages of 100 bytes to
    256 KB. Then one and two nodes on one PostgreSQL, with the processor time of nodes and database apart, and one to
    eight nodes that have a fifth of a core each. Last a flood of sends with slow consumers, looked at again and again.
    Each figure is also told as a share of the best.

    Parameters
    ----------
    axis
        What is to grow: any of queues, backlog, connections, sizes, nodes, small-nodes, flood. Left out, all of them.
    quick
        Measure less, with a tenth of the messages and queues: about three minutes.
    rounds
        How often each measurement is repeated, in turns; medians count.
    seconds
        How long each takes; with wrk, the next whole number.
    own_generator
        Do without wrk.
    output
        The folder where the result is kept, as JSON and as a plot (SVG).
    markdown
        A file to write the tables into, as Markdown.
    json
        Print the result as JSON, instead of tables.
    """
    import msgspec
    from rich.console import Console

    from benchmarks.progress import Narrator
    from benchmarks.report import save, to_json
    from benchmarks.scaling.findings import AXES, Scope
    from benchmarks.scaling.run import run_scaling
    from benchmarks.scaling.tables import draw, print_scaling, to_markdown

    scope = Scope.quick() if quick else Scope()
    scope = msgspec.structs.replace(scope, rounds=rounds or scope.rounds, seconds=seconds or scope.seconds)
    names = [name for name in AXES if axis is None or name in axis]
    narrator = Narrator()
    report = run_to_end(run_scaling(names, scope, narrator, own=own_generator))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_scaling(report, Console())
    if markdown is not None:
        markdown.write_text(to_markdown(report))
    narrator.say(f"Kept in {save(report, output, 'scaling', drawing=draw(report))}, with a plot beside it")
    return 0
