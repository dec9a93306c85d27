"""Procrastinate on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException

from benchmarks.library.programs.tasks import ASYNC, nap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place

_CONNECTIONS = 20
_SLOTS = 20


class _Producer:
    def __init__(self, app: App) -> None:
        self._tasks = {name: app.tasks[name] for name in (*ASYNC, "nap")}

    async def enqueue(self, call: Call) -> None:
        await self._tasks[call[0]].defer_async(**_arguments(call))

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        await self._tasks[calls[0][0]].batch_defer_async(*map(_arguments, calls))


def _arguments(call: Call) -> dict[str, int]:
    return {"number": call[1], "argument": call[2]}


async def open_producer(place: Place) -> _Producer:
    app = _app(place)
    await app.open_async()
    with contextlib.suppress(ConnectorException):  # An earlier producer did it.
        await app.schema_manager.apply_schema_async()
    return _Producer(app)


def work(place: Place, ready: Callable[[], None]) -> None:
    asyncio.run(_work(place, ready))


async def _work(place: Place, ready: Callable[[], None]) -> None:
    app = _app(place)
    async with app.open_async():
        ready()
        await app.run_worker_async(concurrency=place.slots_or(_SLOTS))


def _app(place: Place) -> App:
    connector = PsycopgConnector(conninfo=place.address, min_size=_CONNECTIONS // 4, max_size=_CONNECTIONS)
    app = App(connector=connector)
    for name, function in {**ASYNC, "nap": nap}.items():
        app.task(name=name)(_named(function))
    return app


def _named(function: Callable[[int, int], object]) -> Callable[..., object]:
    """Return the function with parameters of the names that all calls have."""
    if asyncio.iscoroutinefunction(function):

        async def run(number: int, argument: int) -> None:
            await function(number, argument)

        return run

    def run_sync(number: int, argument: int) -> None:
        function(number, argument)

    return run_sync
