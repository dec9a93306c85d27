"""Growth on SQLite: queues, backlog, connections and message size, each over lifecycles one by one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from benchmarks.findings import Figure
from benchmarks.http_servers import with_queue
from benchmarks.process import memory_bytes_of
from benchmarks.rounds import take_turns
from benchmarks.scaling.findings import MEMORY_MB_WANTED_MAX, Axis, Point

if TYPE_CHECKING:
    from benchmarks.rounds import Contestant
    from benchmarks.scaling.place import Place

MILLION = 1_000_000
_CONNECTIONS_PER_SECOND = 300
"""So many connections want a second more, so that each of them is answered a few times."""


async def grow_queues(place: Place) -> Axis:
    """Spread the same load over more and more queues."""
    contestants: dict[int, Contestant] = {}
    async with AsyncExitStack() as opened:
        for count in place.scope.queues:
            place.narrator.say(f"A server with {count:,} queues …")
            serving = place.server(opened)
            queue_urls = place.queue_urls(serving, count)
            serving = msgspec.structs.replace(serving, queue_url=queue_urls[0])
            job = msgspec.structs.replace(place.job(serving), queue_urls=queue_urls if count > 1 else [])
            contestants[count] = await place.contestant(job)
        points = await _points(place, contestants)
    return Axis(name="queues", title="queues", flat=True, points=points)


async def grow_backlog(place: Place) -> Axis:
    """Do the same on top of more and more waiting messages; also tell what memory these take."""
    contestants: dict[int, Contestant] = {}
    memory_bytes: dict[int, int] = {}
    async with AsyncExitStack() as opened:
        for count in place.scope.backlogs:
            place.narrator.say(f"A server with {count:,} waiting messages …")
            serving = with_queue(place.server(opened), "backlog")
            await place.fill(serving, count)
            contestants[count] = await place.contestant(place.job(serving))
            memory_bytes[count] = memory_bytes_of(serving.pid)
        points = await _points(place, contestants)
    points = [msgspec.structs.replace(point, memory_bytes=memory_bytes[point.amount]) for point in points]
    figures = [
        Figure(
            name=f"memory of the server with {count:,} messages waiting",
            value=round(used / 1e6, 1),
            unit="MB",
            wanted_max=MEMORY_MB_WANTED_MAX if count == MILLION else None,
        )
        for count, used in memory_bytes.items()
    ]
    return Axis(name="backlog", title="waiting messages", flat=True, points=points, figures=figures)


async def grow_connections(place: Place) -> Axis:
    """Let more and more clients ask at once."""
    async with AsyncExitStack() as opened:
        serving = with_queue(place.server(opened), "connections")
        place.narrator.say("More and more connections …")
        contestants: dict[int, Contestant] = {}
        for count in place.scope.many_connections:
            job = place.job(serving, seconds=max(place.scope.seconds, count / _CONNECTIONS_PER_SECOND))
            contestants[count] = await place.contestant(msgspec.structs.replace(job, connections=count))
        points = await _points(place, contestants)
    return Axis(name="connections", title="connections", flat=True, points=points)


async def grow_sizes(place: Place) -> Axis:
    """Send larger and larger messages."""
    async with AsyncExitStack() as opened:
        server = place.server(opened)
        place.narrator.say("Larger and larger messages …")
        contestants: dict[int, Contestant] = {}
        for size in place.scope.sizes_bytes:
            serving = with_queue(server, f"size-{size}")
            job = msgspec.structs.replace(place.job(serving), body_bytes=size)
            contestants[size] = await place.contestant(job)
        points = await _points(place, contestants)
    return Axis(name="sizes", title="bytes a message", flat=False, points=points)


async def _points(place: Place, contestants: dict[int, Contestant]) -> list[Point]:
    trials = await take_turns({str(amount): each for amount, each in contestants.items()}, place.scope.rounds)
    return [Point(amount=amount, rounds=trials[str(amount)].rounds) for amount in contestants]
