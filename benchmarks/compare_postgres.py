"""PostgreSQL beside pgmq-style SQL on the same server, and both while another transaction is held open."""

from __future__ import annotations

import contextlib
import os
import urllib.parse
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import asyncpg

from benchmarks.errors import ServerUnavailable
from benchmarks.findings import BATCHES, Section
from benchmarks.pgmq import PgmqLoad, PgmqQueue
from benchmarks.postgres_server import find_binaries, private_server
from benchmarks.rounds import Trial, ratio, take_turns
from benchmarks.scratch import ScratchQueues
from benchmarks.store_run import open_timed
from benchmarks.timing import Budget, Rate
from benchmarks.workload import QueueLoad

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from benchmarks.findings import Extent
    from benchmarks.progress import Narrator
    from benchmarks.rounds import Contestant

PGMQ_RATIO_WANTED = 1.2
HELD_RATIO_WANTED = 0.5
"""Less than this share of the usual rate, while a transaction is held open, is a collapse."""

_HELD_BATCH = 10
_WARM_UP_SECONDS = 0.3


class Load(Protocol):
    """A queue whose lifecycle can be measured, ours or the other's."""

    async def fill(self, messages: int) -> None:
        """Put messages into the queue."""

    async def lifecycle(self, budget: Budget) -> Rate:
        """Measure lifecycles."""


@contextlib.contextmanager
def some_server(dsn: str | None) -> Iterator[str | None]:
    """Give the address of the server that was named, or of a private one, or None where neither is to be had."""
    binaries = None if dsn else find_binaries()
    if binaries is None:
        yield dsn
        return
    with private_server(binaries) as private:
        yield private


async def compare_postgres(extent: Extent, dsn: str, narrator: Narrator) -> list[Section]:
    """Measure in a database of its own on this server, which is dropped afterwards."""
    async with scratch_database(dsn) as database, AsyncExitStack() as opened:
        store, _ = await opened.enter_async_context(open_timed(database))
        queue = await ScratchQueues().make(store, "lifecycle")
        pgmq = await opened.enter_async_context(PgmqQueue(database))
        contestants: dict[str, dict[int, Load]] = {
            "Penstock": {batch: QueueLoad(store, queue, workload) for batch, workload in extent.workloads().items()},
            "pgmq-style": {batch: PgmqLoad(pgmq, workload) for batch, workload in extent.workloads().items()},
        }
        for loads in contestants.values():
            await loads[_HELD_BATCH].fill(extent.small_backlog)
            for load in loads.values():
                await load.lifecycle(Budget(seconds=_WARM_UP_SECONDS))
        narrator.say("PostgreSQL beside pgmq-style SQL …")
        beside = await _beside_each_other(extent, contestants)
        narrator.say(f"Both while a transaction is held open for {extent.held_seconds:g} s …")
        held = await _while_held(extent, database, {name: loads[_HELD_BATCH] for name, loads in contestants.items()})
    return [beside, held]


@asynccontextmanager
async def scratch_database(dsn: str) -> AsyncIterator[str]:
    """Make a database on the server, give its address, and drop it in the end."""
    name = f"penstock_bench_{os.urandom(4).hex()}"
    try:
        server = await asyncpg.connect(dsn)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise ServerUnavailable(f"the server that --postgres names does not let us in: {error}") from error
    try:
        try:
            await server.execute(f"CREATE DATABASE {name}")
        except asyncpg.InsufficientPrivilegeError as error:
            raise ServerUnavailable("the user that --postgres names may not create a database to work in") from error
        try:
            yield urllib.parse.urlsplit(dsn)._replace(path=f"/{name}").geturl()
        finally:
            await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await server.close()


@asynccontextmanager
async def held_transaction(dsn: str) -> AsyncIterator[None]:
    """Hold a transaction open that has written and read: as long as it lasts, nothing deleted since can be vacuumed."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": "held open"})
    try:
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.fetchval("SELECT pg_current_xact_id()::text")
        yield
        await transaction.rollback()
    finally:
        await connection.close()


async def _beside_each_other(extent: Extent, loads: dict[str, dict[int, Load]]) -> Section:
    contestants: dict[str, Contestant] = {}
    for batch, how in BATCHES.items():
        for name, by_batch in loads.items():
            contestants[f"{name}, {how}"] = _lifecycle(by_batch[batch], extent.seconds)
    trials = await take_turns(contestants, extent.rounds)
    ratios = [
        ratio(
            f"Penstock to pgmq-style, {how}",
            trials[f"Penstock, {how}"],
            trials[f"pgmq-style, {how}"],
            wanted=PGMQ_RATIO_WANTED,
        )
        for how in BATCHES.values()
    ]
    return Section(title="PostgreSQL beside pgmq-style SQL", trials=list(trials.values()), ratios=ratios)


async def _while_held(extent: Extent, dsn: str, loads: dict[str, Load]) -> Section:
    trials: list[Trial] = []
    ratios = []
    measured_s = min(2 * extent.seconds, extent.held_seconds / 2)
    for name, load in loads.items():
        await _vacuum(dsn)
        usual = (await take_turns({f"{name}, usually": _lifecycle(load, measured_s)}, 1)).popitem()[1]
        async with held_transaction(dsn):
            # What was deleted piles up first; how fast it is then is the question.
            await load.lifecycle(Budget(seconds=extent.held_seconds - measured_s))
            held = (await take_turns({f"{name}, held": _lifecycle(load, measured_s)}, 1)).popitem()[1]
        trials += [usual, held]
        wanted = HELD_RATIO_WANTED if name == "Penstock" else None
        ratios.append(ratio(f"{name}, held to usual", held, usual, wanted=wanted))
    title = f"PostgreSQL after {extent.held_seconds:g} s with a transaction held open, {BATCHES[_HELD_BATCH]}"
    return Section(title=title, trials=trials, ratios=ratios)


async def _vacuum(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("VACUUM (ANALYZE)")
    finally:
        await connection.close()


def _lifecycle(load: Load, seconds: float) -> Contestant:
    return lambda: load.lifecycle(Budget(seconds=seconds))
