"""Penstock: on a server over HTTP, or embedded. There is one class: what it acknowledges is on disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from benchmarks.library.programs.tasks import ASYNC, nap
from penstock import Penstock, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place

_QUEUE = "bench"
_SLOTS = 20


class _Producer:
    def __init__(self, app: Penstock) -> None:
        self._app = app
        self._tasks = _tasks(app)

    async def enqueue(self, call: Call) -> None:
        await self._tasks[call[0]].enqueue(*call[1:])

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        await self._app.enqueue_many(self._tasks[name].call(number, argument) for name, number, argument in calls)


async def open_producer(place: Place) -> _Producer:
    return _Producer(Penstock(place.address))


def work(place: Place, ready: Callable[[], None]) -> None:
    asyncio.run(_work(place, ready))


async def _work(place: Place, ready: Callable[[], None]) -> None:
    app = Penstock(place.address)
    _tasks(app)
    ready()
    await Worker(app, queues={_QUEUE: place.slots_or(_SLOTS)}).run()


def _tasks(app: Penstock) -> dict[str, Any]:
    return {name: app.task(name=name, queue=_QUEUE)(function) for name, function in {**ASYNC, "nap": nap}.items()}
