"""Gathering: calls of one verb that come while others are under way are carried out together."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Entry = TypeVar("Entry")
Result = TypeVar("Result")

ENTRIES_MAX = 500
"""How many entries go together; a call that has more goes alone."""


class Gathering(Generic[Entry, Result]):
    """Carries out calls, up to `width` at a time, each of them for all whose entries were waiting.

    `run` answers for each entry by itself, in order. What it raises for several calls may be the fault of one of them:
    then each is carried out alone, and what is raised is its own. A call that is cancelled may be carried out.
    """

    def __init__(self, run: Callable[[list[Entry]], Awaitable[list[Result]]], *, width: int) -> None:
        self._run = run
        self._width = width
        self._waiting: deque[tuple[Sequence[Entry], asyncio.Future[list[Result]]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._under_way

    async def call(self, entries: Sequence[Entry]) -> list[Result]:
        """Have entries dealt with, perhaps together with those of others."""
        answer: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append((entries, answer))
        if len(self._under_way) < self._width:
            task = asyncio.create_task(self._work())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            together = self._next()
            try:
                results = await self._run([entry for entries, _ in together for entry in entries])
            except Exception as error:  # noqa: BLE001 - told to the callers
                if len(together) == 1:
                    _fail(together[0][1], error)
                else:
                    await self._run_apart(together)
                continue
            first = 0
            for entries, answer in together:
                if not answer.done():
                    answer.set_result(results[first : first + len(entries)])
                first += len(entries)

    def _next(self) -> list[tuple[Sequence[Entry], asyncio.Future[list[Result]]]]:
        together = [self._waiting.popleft()]
        number = len(together[0][0])
        while self._waiting and number + len(self._waiting[0][0]) <= ENTRIES_MAX:
            number += len(self._waiting[0][0])
            together.append(self._waiting.popleft())
        return together

    async def _run_apart(self, together: list[tuple[Sequence[Entry], asyncio.Future[list[Result]]]]) -> None:
        for entries, answer in together:
            try:
                results = await self._run(list(entries))
            except Exception as error:  # noqa: BLE001 - as above
                _fail(answer, error)
            else:
                if not answer.done():
                    answer.set_result(results)


def _fail(answer: asyncio.Future[list[Result]], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
