"""What callers do to a queue through the store port: send, receive and delete, one after the other or as lifecycles."""

from __future__ import annotations

import itertools
import os
import random
import string
from typing import TYPE_CHECKING

import msgspec

from benchmarks.errors import WorkFailed
from benchmarks.timing import Budget, Rate, Stopwatch, measure
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import HOUR_MS, Limits
from penstock.domain.message import Draft, Receipt, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.timing import Step
    from penstock.domain.queue import Queue
    from penstock.store.port import Store

FIFO_GROUPS = 1_000
"""Message groups on a FIFO queue, unless told otherwise."""

_LEASE_MS = HOUR_MS
_BODIES = 64
_BODIES_BYTES_MAX = 4 << 20
_FILL_BATCH = 100
_FILL_CALLERS = 16
_EMPTY_ROUNDS_MAX = 100


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What the callers do, and how many they are.

    `groups` is the number of message groups, 0 for messages without one. On FIFO the messages of one batch share a
    group, as far as they fit. With `attempts` every send and receive carries an attempt key, as those of the SDKs do.
    """

    callers: int = 64
    batch: int = 1
    body_bytes: int = 1024
    attempts: bool = True
    fifo: bool = False
    groups: int = 0


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """The three operations measured by themselves: all sends, then all receives, then all deletes."""

    send: Rate
    receive: Rate
    delete: Rate


def make_bodies(body_bytes: int) -> list[str]:
    """Make some texts that do not compress, the same in every run."""
    letters = random.Random(body_bytes)
    count = max(4, min(_BODIES, _BODIES_BYTES_MAX // body_bytes))
    return ["".join(letters.choices(string.ascii_letters, k=body_bytes)) for _ in range(count)]


class QueueLoad:
    """One queue and the work that callers do on it."""

    def __init__(self, store: Store, queue: Queue, workload: Workload) -> None:
        self._store = store
        self._queue = queue
        self._workload = workload
        self._ids = OrderedIds()
        self._numbers = itertools.count()
        self._bodies = make_bodies(workload.body_bytes)
        self._leased: list[Receipt] = []

    def on(self, store: Store) -> QueueLoad:
        """Go on with the same queue in the store as it was opened again."""
        return QueueLoad(store, self._queue, self._workload)

    async def lifecycle(self, budget: Budget) -> Rate:
        """Measure lifecycles: each caller sends a batch, receives as many, and deletes what it received."""
        workload = self._workload
        return await measure(self._cycle, callers=workload.callers, batch=workload.batch, budget=budget)

    async def phases(self, messages: int) -> Phases:
        """Measure sends, receives and deletes, each by itself, of so many messages in all.

        They come in stretches of what may be in flight at once, and on FIFO of what the groups let go at once.
        """
        workload, limits = self._workload, Limits()
        stretch = limits.in_flight_standard_max // 2
        if workload.fifo:
            stretch = min(limits.in_flight_fifo_max // 2, workload.groups * workload.batch)
        send, receive, delete = Stopwatch(), Stopwatch(), Stopwatch()
        while left := messages - delete.messages:
            sent = await self._run(send, self._send, min(stretch, left))
            await self._take_out(receive, delete, sent)
        return Phases(send=send.rate(), receive=receive.rate(), delete=delete.rate())

    async def _take_out(self, receive: Stopwatch, delete: Stopwatch, messages: int) -> None:
        empty_rounds = 0
        while messages:
            # A FIFO group of which a part was received gives the rest only once that part is deleted.
            received = await self._run(receive, self._receive, messages)
            empty_rounds = 0 if received else empty_rounds + 1
            if empty_rounds > _EMPTY_ROUNDS_MAX:
                raise WorkFailed(f"{messages} messages that were sent are not delivered")
            if received:
                messages -= await self._run(delete, self._delete, received)

    async def _run(self, stopwatch: Stopwatch, step: Step, messages: int) -> int:
        workload = self._workload
        budget = Budget(messages=messages)
        return await stopwatch.run(step, callers=workload.callers, batch=workload.batch, budget=budget)

    async def fill(self, messages: int, stored: Callable[[int], None] = lambda _: None) -> None:
        """Put so many messages into the queue, in large batches; tell `stored` after each how many more there are."""

        async def put(count: int) -> int:
            await self._append(count, None)
            stored(count)
            return count

        if messages:
            await measure(put, callers=_FILL_CALLERS, batch=_FILL_BATCH, budget=Budget(messages=messages))

    async def _cycle(self, count: int) -> int:
        await self._send(count)
        receipts = await self._lease(count)
        return await self._remove(receipts) if receipts else 0

    async def _send(self, count: int) -> int:
        await self._append(count, self._attempt())
        return count

    async def _receive(self, count: int) -> int:
        receipts = await self._lease(count)
        self._leased += receipts
        return len(receipts)

    async def _delete(self, count: int) -> int:
        receipts, self._leased[-count:] = self._leased[-count:], []
        return await self._remove(receipts)

    async def _append(self, count: int, attempt: bytes | None) -> None:
        answers = await self._store.append(self._queue, [self._draft() for _ in range(count)], attempt=attempt)
        for answer in answers:
            if isinstance(answer, Refused):
                raise WorkFailed(f"a send was refused: {answer.reason}")

    async def _lease(self, count: int) -> list[Receipt]:
        leased = await self._store.lease(self._queue, count=count, lease_ms=_LEASE_MS, attempt=self._attempt())
        return [Receipt(self._queue.id, message.position, message.receipt) for message in leased.messages]

    async def _remove(self, receipts: list[Receipt]) -> int:
        for error in await self._store.delete(self._queue, receipts):
            if error is not None:
                raise WorkFailed(f"a delete was refused: {error.reason}")
        return len(receipts)

    def _attempt(self) -> bytes | None:
        return os.urandom(16) if self._workload.attempts else None

    def _draft(self) -> Draft:
        workload, number, message_id = self._workload, next(self._numbers), self._ids.new_id()
        body = self._bodies[number % len(self._bodies)]
        if not workload.groups:
            return Draft(message_id=message_id, body=body)
        if not workload.fifo:
            return Draft(message_id=message_id, body=body, group=f"group-{number % workload.groups}")
        group = f"group-{number // workload.batch % workload.groups}"
        return Draft(message_id=message_id, body=body, group=group, deduplication_id=message_id)
