"""A process that forks others, all of which have loaded everything and are meant to be killed.

It reads lines: what to run and its arguments. It answers with the child's pid, as soon as that has
something to lose or is dead, and to an empty line with its exit code.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial

import asyncpg
import psycopg

from penstock import Penstock
from penstock.domain.failpoints import Failpoints
from penstock.engine.engine import Engine
from penstock.wire.jobs.staging import read_staged
from tests.transactions import once_attempt, ordering_victim, relay_victim

app = Penstock("http://127.0.0.1:1", timeout=1)  # Nobody answers there: the transaction is all that is needed.

FAILED = 1
ROLLED_BACK_SHARE = 4
"""One transaction in so many is rolled back."""


@app.task(name="confirm", queue="confirmations")
async def confirm(order: int) -> None:
    raise AssertionError(order)


def order_by_psycopg(ready: Callable[[], None], dsn: str, first: str) -> None:
    """Insert orders, and enqueue a job with each, until killed."""
    chance = random.Random(first)
    with psycopg.connect(dsn) as connection:
        for order in range(int(first), int(first) + 1_000_000):
            ready()
            connection.execute("INSERT INTO orders (id) VALUES (%s)", (order,))
            confirm.opts(tx=connection).enqueue_sync(order)
            if chance.randrange(ROLLED_BACK_SHARE):
                connection.commit()
            else:
                connection.rollback()


def order_by_asyncpg(ready: Callable[[], None], dsn: str, first: str) -> None:
    """The same."""
    asyncio.run(_order_by_asyncpg(ready, dsn, int(first)))


async def _order_by_asyncpg(ready: Callable[[], None], dsn: str, first: int) -> None:
    chance = random.Random(first)
    connection = await asyncpg.connect(dsn)
    for order in range(first, first + 1_000_000):
        ready()
        transaction = connection.transaction()
        await transaction.start()
        await app.enqueue_many([confirm.call(order)], tx=connection)
        await connection.execute("INSERT INTO orders (id) VALUES ($1)", order)
        await (transaction.commit() if chance.randrange(ROLLED_BACK_SHARE) else transaction.rollback())


def take(ready: Callable[[], None], dsn: str, place: str, passes: str) -> None:
    """Take jobs in, and be killed at a place, after so many passes through it."""
    asyncio.run(_take(ready, dsn, place, int(passes)))


async def _take(ready: Callable[[], None], dsn: str, place: str, passes: int) -> None:
    failpoints = Failpoints()
    for _ in range(passes):
        failpoints.arm(place, lambda: None)
    failpoints.arm(place, lambda: os.kill(os.getpid(), signal.SIGKILL))
    async with Engine.open(dsn, failpoints=failpoints, read_staged=read_staged, upkeep=False) as engine:
        ready()
        while (counts := await engine.jobs.staging.counts()) is not None and counts.waiting:
            await engine.jobs.staging.step()


def attempt(ready: Callable[[], None], url: str, job_id: str, number: str, place: str, go: str = "0") -> int:
    """Do an effect once, not before the instant `go`; the exit code says what came of it."""
    ready()
    time.sleep(max(float(go) - time.monotonic(), 0))
    return once_attempt.main(url, job_id, number, place)


def order(_: Callable[[], None], *arguments: str) -> None:
    """Place an order by way of an outbox, and be killed at a place."""
    ordering_victim.main(*arguments)


def relay(_: Callable[[], None], *arguments: str) -> None:
    """Relay, and be killed at a place."""
    relay_victim.main(*arguments)


READY_AFTER = {"order_by_psycopg": 2, "order_by_asyncpg": 2}
"""How many calls of `ready` it takes, if not one. The first transaction is slow: it loads what is needed."""

RUN: dict[str, Callable[..., int | None]] = {
    run.__name__: run for run in (order_by_psycopg, order_by_asyncpg, take, attempt, order, relay)
}


def tell(calls: Iterator[int], number: int, writing: int) -> None:
    """Say, at a certain call, that there is something to lose."""
    if next(calls) == number:
        os.write(writing, b".")


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        what, *arguments = line.split("\t")
        arguments = [argument.strip() for argument in arguments]
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            ready = partial(tell, itertools.count(1), READY_AFTER.get(what, 1), writing)
            code = FAILED
            try:
                code = RUN[what](ready, *arguments) or 0
            except BaseException:  # noqa: BLE001 - shown, and told by the exit code
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        say(pid)
        sys.stdin.readline()  # It is to be dead now, or to end by itself.
        _, status = os.waitpid(pid, 0)
        say(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
