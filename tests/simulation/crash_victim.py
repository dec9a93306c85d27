"""A process to be killed: many callers send, receive and delete at once, and tell what they did as soon as they know.

Run as `python crash_victim.py URL RUN BATCHES_MAX`. Standard input holds sends to be tried again, one a line, then an
empty line; when it is closed the process finishes in good order. `tests.simulation.ledger` reads standard output.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable

from penstock.domain.clock import SystemClock, sleep_until
from penstock.domain.ids import OrderedIds
from penstock.domain.message import Draft, Receipt
from penstock.domain.queue import Queue, QueueAttributes, QueueName
from penstock.store.opening import open_store
from penstock.store.port import Store

CALLERS = 16
BATCH_MAX = 10
LONG_LEASE_MS = 6_000
"""Longer than any call takes, so that a delete under this lease is in time."""
SHORT_LEASE_MS = 50
PAUSE_MS = 10
NAMES = (QueueName("eu-central-1", "000000000000", "stream"), QueueName("eu-central-1", "000000000000", "stream.fifo"))


def monotonic_ms() -> float:
    """Time that all processes of one machine agree on."""
    return time.monotonic_ns() / 1e6


def tell(*words: object) -> None:
    """Write one line, at once and in one piece."""
    line = (" ".join(map(str, words)) + "\n").encode()
    assert len(line) <= 4096, "a longer line could be torn by the kill"
    os.write(sys.stdout.fileno(), line)


class Victim:
    """The callers of one node, on one store. Each sends `batches_max` batches, and receives until it is stopped."""

    def __init__(
        self, store: Store, queues: list[Queue], run: str, batches_max: int, tell: Callable[..., None]
    ) -> None:
        self.store = store
        self.queues = queues
        self.run = run
        self.batches_max = batches_max
        self.tell = tell
        self.sending = CALLERS
        self.ids = OrderedIds()
        self.clock = SystemClock()
        self.stopping = asyncio.Event()

    async def work(self) -> None:
        async with asyncio.TaskGroup() as callers:
            for number in range(CALLERS):
                callers.create_task(self.call(number))

    async def call(self, number: int) -> None:
        """Be one caller: send, receive and delete in turns, on a queue chosen anew each time."""
        chance = random.Random(f"{self.run}/{number}")
        sent = 0
        for batch in range(sys.maxsize):
            if self.stopping.is_set():
                return
            if batch == self.batches_max:
                self.sending -= 1
                if self.sending == 0:
                    self.tell("sent-all", self.run)
            if batch < self.batches_max:
                bodies = [f"{self.run}.{number}.{sent + i}" for i in range(chance.randint(1, BATCH_MAX))]
                sent += len(bodies)
                await self.send(chance.choice(self.queues), os.urandom(16), bodies)
            # Somewhat more is received than sent, so that the backlog stays small.
            for _ in range(2):
                await self.receive(chance.choice(self.queues), chance)

    async def send(self, queue: Queue, key: bytes, bodies: list[str]) -> None:
        group = bodies[0].rpartition(".")[0]
        drafts = [
            Draft(
                message_id=self.ids.new_id(),
                body=body,
                group=group,
                deduplication_id=self.ids.new_id() if queue.fifo else None,
            )
            for body in bodies
        ]
        self.tell("sending", key.hex(), queue.name.name, *bodies)
        await self.store.append(queue, drafts, attempt=key)
        self.tell("sent", key.hex(), monotonic_ms())

    async def receive(self, queue: Queue, chance: random.Random) -> None:
        lease_ms = SHORT_LEASE_MS if chance.random() < 0.1 else LONG_LEASE_MS
        called_ms = monotonic_ms()
        leased = await self.store.lease(queue, count=chance.randint(1, BATCH_MAX), lease_ms=lease_ms)
        if not leased.messages:
            await sleep_until(self.clock, self.clock.now_ms() + PAUSE_MS)
            return
        seen = [f"{message.body}:{message.receipt}:{message.message_id}" for message in leased.messages]
        self.tell("received", queue.name.name, called_ms, monotonic_ms(), lease_ms, *seen)
        if lease_ms == SHORT_LEASE_MS:
            return  # As a consumer that went away: the messages come back by themselves.
        bodies = [message.body for message in leased.messages]
        self.tell("deleting", queue.name.name, monotonic_ms(), *bodies)
        answers = await self.store.delete(queue, [Receipt(queue.id, m.position, m.receipt) for m in leased.messages])
        deleted = [body for body, answer in zip(bodies, answers, strict=True) if answer is None]
        self.tell("deleted", queue.name.name, monotonic_ms(), *deleted)


async def make_queues(store: Store) -> list[Queue]:
    return [(await store.create_queue(name, QueueAttributes(), {}))[0] for name in NAMES]


async def main(url: str, run: str, batches_max: int) -> None:
    store = await open_store(url)
    queues = await make_queues(store)
    by_name = {queue.name.name: queue for queue in queues}
    victim = Victim(store, queues, run, batches_max, tell)
    for line in iter(sys.stdin.readline, "\n"):
        key, name, *bodies = line.split()
        await victim.send(by_name[name], bytes.fromhex(key), bodies)
    tell("ready")
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), victim.stopping.set)
    await victim.work()
    loop.remove_reader(sys.stdin.fileno())
    await store.close()
    tell("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
