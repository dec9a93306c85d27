"""The loads that every server gets: what is asked of it, on what queue, and which figure of it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from benchmarks.http_handover import hand_over
from benchmarks.http_load import Job, Kind

if TYPE_CHECKING:
    from benchmarks.http_generator import Generator
    from benchmarks.http_servers import Serving
    from benchmarks.peers.entrants import Entrant
    from benchmarks.peers.findings import Scope
    from benchmarks.timing import Rate

Measure = Literal["requests/s", "messages/s", "p99 ms", "MB"]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One load. Those `on_backlog` are measured on fresh servers, in which messages wait."""

    name: str
    title: str
    heading: str
    measure: Measure
    kind: Kind | None = None
    batch: int = 1
    fifo: bool = False
    on_backlog: bool = False

    @property
    def more_is_better(self) -> bool:
        """Whether a higher figure is the better one."""
        return self.measure.endswith("/s")


LOADS = {
    load.name: load
    for load in (
        Load(name="send", title="SendMessage", heading="send", measure="requests/s", kind="send"),
        Load(
            name="send-tens",
            title="SendMessageBatch of ten",
            heading="send in tens",
            measure="messages/s",
            kind="send",
            batch=10,
        ),
        Load(
            name="lifecycle", title="lifecycle one by one", heading="lifecycle", measure="requests/s", kind="lifecycle"
        ),
        Load(
            name="lifecycle-tens",
            title="lifecycle in tens",
            heading="lifecycle in tens",
            measure="messages/s",
            kind="lifecycle",
            batch=10,
        ),
        Load(name="fifo", title="FIFO lifecycle", heading="FIFO", measure="requests/s", kind="lifecycle", fifo=True),
        Load(name="hand-over", title="hand-over to a waiting consumer", heading="hand-over", measure="p99 ms"),
        Load(
            name="backlog",
            title="lifecycle on a backlog",
            heading="on a backlog",
            measure="requests/s",
            kind="lifecycle",
            on_backlog=True,
        ),
        Load(name="memory", title="memory per 100,000 waiting", heading="memory", measure="MB", on_backlog=True),
    )
}


async def measure(load: Load, entrant: Entrant, serving: Serving, generator: Generator, scope: Scope) -> Rate:
    """Apply a load to a queue of a server once."""
    if load.kind is None:
        return await hand_over(serving, body_bytes=scope.body_bytes, seconds=entrant.seconds)
    job = Job(
        port=serving.port,
        pid=serving.pid,
        queue_url=serving.queue_url,
        kind=load.kind,
        batch=load.batch,
        connections=entrant.connections,
        body_bytes=scope.body_bytes,
        seconds=entrant.seconds,
        groups=scope.groups if load.fifo else 0,
    )
    return await generator.run(job)
