"""`python -m benchmarks peers`: Penstock beside the other servers that speak SQS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from benchmarks.cli.run import Switch, run_to_end

PeerName = Literal["elasticmq", "elasticmq-h2", "goaws", "localstack", "moto"]
LoadName = Literal["send", "send-tens", "lifecycle", "lifecycle-tens", "fifo", "hand-over", "backlog", "memory"]
Choices = Parameter(consume_multiple=True, negative="")


def bench_peers(  # noqa: PLR0913 # Each is one option of the command.
    *,
    peer: Annotated[list[PeerName] | None, Choices] = None,
    load: Annotated[list[LoadName] | None, Choices] = None,
    full: Switch = False,
    rounds: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    seconds: Annotated[float | None, Parameter(validator=Number(gt=0, lte=60))] = None,
    warm_up: Annotated[float | None, Parameter(validator=Number(gte=0, lte=120))] = None,
    connections: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 64,
    body_bytes: Annotated[int, Parameter(validator=Number(gte=1, lte=100_000))] = 1024,
    backlog: Annotated[int, Parameter(validator=Number(gte=100, lte=1_000_000))] = 100_000,
    cache: Path | None = None,
    own_generator: Switch = False,
    output: Path = Path("bench-results"),
    markdown: Path | None = None,
    json: Switch = False,
) -> int:
    """Measure Penstock and the other servers that speak SQS, side by side and in turns, in about eight minutes.

    `penstock serve` with durable SQLite beside a bare handler that stores nothing, ElasticMQ (in memory, and with its
    messages in H2), GoAWS, LocalStack and moto. Peers are fetched once, by name and version, with mvn, go and pip as
    they are set up on this machine. What cannot be fetched, started or measured is told with its reason, and the rest
    goes on. The load comes from wrk, if it is installed, or from our own generator. The processor time is that of the
    server's process and its children.

    Parameters
    ----------
    peer
        Which peers take part: any of elasticmq, elasticmq-h2, goaws, localstack, moto. Left out, all of them.
        Penstock and the bare handler always do.
    load
        Which loads they get. send: SendMessage. send-tens: SendMessageBatch of ten. lifecycle and lifecycle-tens: send,
        receive and delete, one by one and in tens. fifo: lifecycles over 1,000 message groups. hand-over: from a send
        to a consumer that waits for it. backlog: lifecycles on top of waiting messages. memory: what these take. Left
        out, all of them.
    full
        Measure longer: about twenty minutes.
    rounds
        How often each measurement is repeated, in turns; medians count.
    seconds
        How long each takes; with wrk, the next whole number.
    warm_up
        How many seconds of processor time ElasticMQ, which needs most, gets before it is measured; others a tenth.
    connections
        How many connections are kept open, each with one request at a time (moto: 8 at most).
    body_bytes
        How large each message is.
    backlog
        How many messages wait for the loads backlog and memory.
    cache
        Where peers are kept from one run to the next. By default penstock/peers in the user's cache folder.
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

    from benchmarks.peers.catalogue import PEERS
    from benchmarks.peers.fetching import default_cache
    from benchmarks.peers.findings import BARE, PENSTOCK, Scope
    from benchmarks.peers.loads import LOADS
    from benchmarks.peers.run import run_peers
    from benchmarks.peers.tables import draw, print_peers, to_markdown
    from benchmarks.progress import Narrator
    from benchmarks.report import save, to_json

    scope = Scope.full() if full else Scope()
    scope = msgspec.structs.replace(
        scope,
        rounds=rounds or scope.rounds,
        seconds=seconds or scope.seconds,
        warm_up_cpu_seconds=scope.warm_up_cpu_seconds if warm_up is None else warm_up,
        connections=connections,
        body_bytes=body_bytes,
        backlog=backlog,
    )
    names = [BARE, PENSTOCK, *(name for name in PEERS if peer is None or name in peer)]
    loads = [each for name, each in LOADS.items() if load is None or name in load]
    narrator = Narrator()
    report = run_to_end(run_peers(names, loads, scope, cache or default_cache(), narrator, own=own_generator))
    if report is None:
        return 1
    if json:
        print(to_json(report))  # noqa: T201 # It is what was asked for, for another program to read.
    else:
        print_peers(report, Console())
    if markdown is not None:
        markdown.write_text(to_markdown(report))
    narrator.say(f"Kept in {save(report, output, 'peers', drawing=draw(report))}, with a plot beside it")
    return 0
