"""A worker inside a test, and what it said."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from penstock import Penstock, Worker
from penstock.client.worker.attempt import Attempt
from penstock.client.worker.notices import Notice

PATIENCE_S = 30.0
"""How long anything may take on a machine that has much else to do."""

N = TypeVar("N", bound=Notice)


class Notes:
    """Keeps what a worker says."""

    verbose = True

    def __init__(self) -> None:
        self.all: list[Notice] = []
        self._changed = asyncio.Event()
        self.worker: Worker | None = None

    def notice(self, notice: Notice) -> None:
        self.all.append(notice)
        self._changed.set()

    def attempts(self) -> list[Attempt]:
        """The attempts whose leases the worker has."""
        assert self.worker is not None
        assert self.worker._host is not None  # noqa: SLF001 - it shows them to nobody else
        return list(self.worker._host.leases.values())  # noqa: SLF001

    def held(self) -> int:
        """How many offers the worker has that it has not accepted."""
        assert self.worker is not None
        return sum(len(lane._held) for lane in self.worker._lanes)  # noqa: SLF001 - as above

    def is_changing_credit(self) -> bool:
        """Return whether a request that changes the credit of a stream is under way."""
        assert self.worker is not None
        changes = [lane._crediting for lane in self.worker._lanes]  # noqa: SLF001 - as above
        return any(change is not None and not change.done() for change in changes)

    def of(self, kind: type[N]) -> list[N]:
        return [notice for notice in self.all if isinstance(notice, kind)]

    async def wait_for(self, kind: type[N], count: int = 1) -> list[N]:
        """Wait until it has sent `count` notices of a kind."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := self.of(kind)) < count:
                self._changed.clear()
                await self._changed.wait()
        return found


@contextlib.asynccontextmanager
async def working(app: Penstock, **queues: int) -> AsyncIterator[Notes]:
    """Run a worker of these queues, and of all tasks' if none is named; stop it in the end."""
    async with working_as(app, queues or None) as notes:
        yield notes


@contextlib.asynccontextmanager
async def working_as(app: Penstock, queues: dict[str, int] | None, **options: Any) -> AsyncIterator[Notes]:
    notes = Notes()
    worker = Worker(app, queues, observer=notes, **{"grace": 5, **options})
    notes.worker = worker
    running = asyncio.create_task(worker.run(signals=False))
    try:
        yield notes
    finally:
        if not running.done():
            worker.stop()
        async with asyncio.timeout(PATIENCE_S):
            await running


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds that nothing signals."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
