"""The servers that take part in a comparison: fetched, started, warmed up, and filled with a backlog where asked."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import TYPE_CHECKING

import msgspec

from benchmarks.errors import BenchmarkFailed, WorkFailed
from benchmarks.http_load import Job
from benchmarks.http_servers import (
    Serving,
    bare_handler,
    call,
    free_port,
    penstock_server,
    started,
    with_queue,
)
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.fetching import fetch
from benchmarks.peers.findings import BARE, PENSTOCK, Memory, Server
from benchmarks.process import cpu_seconds_of, memory_bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.http_generator import Generator
    from benchmarks.http_load import Kind
    from benchmarks.peers.catalogue import Peer
    from benchmarks.peers.findings import Scope

_SHORT_WARM_UP_SHARE = 0.1
_WARM_UP_PATIENCE = 3
_WARM_UP_STRETCH_SECONDS = 3.0
_PROBE_SHARE = 100
"""A hundredth of a backlog tells how long all of it will take."""


class Entrant(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs."""

    name: str
    serving: Serving
    connections: int
    seconds: float
    """How long each measurement of it takes."""
    warm_up_cpu_seconds: float
    tidy: bool
    """Whether a queue is purged once it was measured: what waits there would slow down what is measured next."""

    def queue(self, name: str, *, fifo: bool = False) -> Serving:
        """Make a queue."""
        # The bare handler has none, and does not care.
        return self.serving if self.name == BARE else with_queue(self.serving, name, fifo=fifo)

    def leave(self, queue: Serving) -> None:
        """Have done with a queue."""
        if self.tidy:
            # Not deleted: the last requests may be under way, and GoAWS hangs if their queue is gone.
            call(queue, "PurgeQueue", {"QueueUrl": queue.queue_url})


def servers(names: list[str]) -> list[Server]:
    """Tell of those that are to be measured."""
    known = {
        BARE: Server(name=BARE, title="bare handler", keeps="nothing"),
        PENSTOCK: Server(name=PENSTOCK, title="Penstock", keeps="SQLite, durable"),
    }
    known |= {name: Server(name=name, title=peer.title, keeps=peer.keeps) for name, peer in PEERS.items()}
    return [known[name] for name in names]


@contextlib.contextmanager
def entered(name: str, folder: Path, cache: Path, scope: Scope) -> Iterator[Entrant]:
    """Run a server in this folder until the block ends."""
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as opened:
        peer = PEERS.get(name)
        if peer is not None:
            serving = opened.enter_context(peer_server(peer, folder, cache))
        elif name == BARE:
            serving = opened.enter_context(bare_handler(folder))
        else:
            serving = opened.enter_context(penstock_server(folder))
        share = _SHORT_WARM_UP_SHARE if peer is None else peer.warm_up_share
        yield Entrant(
            name=name,
            serving=serving,
            connections=scope.connections if peer is None else min(scope.connections, peer.connections_max),
            seconds=scope.seconds if peer is None else max(scope.seconds, peer.seconds_min),
            warm_up_cpu_seconds=share * scope.warm_up_cpu_seconds,
            # Ours costs the same whatever waits, and would sweep up while others are measured.
            tidy=peer is not None,
        )


@contextlib.contextmanager
def peer_server(peer: Peer, folder: Path, cache: Path) -> Iterator[Serving]:
    """Fetch a peer if need be, and run it in this folder."""
    launch = peer.launch(fetch(peer.source, cache), folder, port := free_port())
    for name, text in launch.files.items():
        (folder / name).write_text(text)
    # Nobody reads what it prints, so that goes where its complaints go.
    command = ["/bin/sh", "-c", 'exec "$@" >&2', "sh", *launch.command]
    with started(command, folder, port=port, settings=launch.settings) as serving:
        yield serving


async def warm_up(entrant: Entrant, generator: Generator, scope: Scope) -> None:
    """Let a server do what it will be measured at, so that what it compiles or caches is there.

    It takes as much processor time as it should, or a few times as long.
    """
    loads: list[tuple[Kind, int]] = [("send", 1)] if entrant.name == BARE else [("lifecycle", 1), ("lifecycle", 10)]
    wanted_s = cpu_seconds_of(entrant.serving.pid) + entrant.warm_up_cpu_seconds
    ends_s = time.perf_counter() + _WARM_UP_PATIENCE * entrant.warm_up_cpu_seconds
    for kind, batch in itertools.cycle(loads):
        queue = entrant.queue(f"warm-up-{batch}")
        job = Job(
            port=queue.port,
            pid=queue.pid,
            queue_url=queue.queue_url,
            kind=kind,
            batch=batch,
            connections=entrant.connections,
            body_bytes=scope.body_bytes,
            seconds=min(_WARM_UP_STRETCH_SECONDS, entrant.warm_up_cpu_seconds),
        )
        with contextlib.suppress(WorkFailed):  # A slow server comes to nothing in so short a time.
            await generator.run(job)
        entrant.leave(queue)
        if cpu_seconds_of(entrant.serving.pid) >= wanted_s or time.perf_counter() > ends_s:
            return


async def fill(entrant: Entrant, queue: Serving, own: Generator, scope: Scope) -> Memory:
    """Put a backlog into a queue, and tell what memory that takes; not if it would take the server too long."""
    before_bytes = memory_bytes_of(entrant.serving.pid)
    probe = max(1, scope.backlog // _PROBE_SHARE)
    started_s = time.perf_counter()
    await _put(entrant, queue, own, scope, probe)
    estimated_s = (time.perf_counter() - started_s) * scope.backlog / probe
    if estimated_s > scope.fill_seconds_max:
        raise BenchmarkFailed(
            f"{scope.backlog:,} messages would take it about {estimated_s:,.0f} s, "
            f"which is more than the {scope.fill_seconds_max:g} s that are allowed"
        )
    await _put(entrant, queue, own, scope, scope.backlog - probe)
    after_bytes = memory_bytes_of(entrant.serving.pid)
    return Memory(messages=scope.backlog, before_bytes=before_bytes, after_bytes=after_bytes)


async def _put(entrant: Entrant, queue: Serving, own: Generator, scope: Scope, messages: int) -> None:
    if not messages:
        return
    job = Job(
        port=queue.port,
        pid=queue.pid,
        queue_url=queue.queue_url,
        kind="send",
        batch=10,
        connections=min(16, entrant.connections),
        body_bytes=scope.body_bytes,
        seconds=2 * scope.fill_seconds_max,
        messages=messages,
    )
    rate = await own.run(job)
    if rate.messages < messages:
        raise BenchmarkFailed(f"it took only {rate.messages:,} of {messages:,} messages in {rate.seconds:g} s")
