"""Gathering: calls of one verb that come while others are under way are carried out together."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from penstock.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Entry = TypeVar("Entry")
Result = TypeVar("Result")

ENTRIES_MAX = 500
"""How many entries go together; a call that has more goes alone."""

BYTES_MAX = 8 * 1_048_576
"""How much of payloads and results goes together; a call that has more goes alone."""

WAITING_MAX = 10_000
"""How many calls wait; more are refused."""


class _Call(NamedTuple, Generic[Entry, Result]):
    """A call that waits for its turn."""

    entries: Sequence[Entry]
    size: int
    answer: asyncio.Future[list[Result]]


class Gathering(Generic[Entry, Result]):
    """Carries out calls, up to `width` at a time, each of them for all whose entries were waiting.

    `run` answers for each entry by itself, in order. What it raises for several calls may be the fault of one of them:
    then each is carried out alone, and what is raised is its own; but that the store is not available is told to all.
    A call that is cancelled may be carried out all the same.
    """

    def __init__(
        self,
        run: Callable[[list[Entry]], Awaitable[list[Result]]],
        *,
        width: int,
        size_of: Callable[[Entry], int] | None = None,
    ) -> None:
        """`size_of` tells the bytes of an entry; without it there are none that count."""
        self._run = run
        self._width = width
        self._size_of = size_of
        self._waiting: deque[_Call[Entry, Result]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._under_way

    async def call(self, entries: Sequence[Entry]) -> list[Result]:
        """Have entries dealt with, perhaps together with those of others."""
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        if len(self._waiting) >= WAITING_MAX:
            raise StoreUnavailable(f"{WAITING_MAX} calls wait for the store already. Try again later.")
        size = 0 if self._size_of is None else sum(map(self._size_of, entries))
        answer: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(entries, size, answer))
        if len(self._under_way) < self._width:
            self._under_way.add(asyncio.create_task(self._work()))
        return await answer

    async def close(self) -> None:
        """Refuse what comes, and wait until what was asked for is dealt with."""
        self._closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _work(self) -> None:
        try:
            while self._waiting:
                together = self._next()
                if together:
                    await self._deal_with(together)
        finally:
            # At once, not when the loop tells that the task is done: who is answered may ask again before that, and
            # would then wait for somebody who has looked for the last time.
            task = asyncio.current_task()
            assert task is not None
            self._under_way.discard(task)

    def _next(self) -> list[_Call[Entry, Result]]:
        """Take those who go together. Who was cancelled before his turn need not be served."""
        together: list[_Call[Entry, Result]] = []
        number = size = 0
        while self._waiting:
            one = self._waiting[0]
            number += len(one.entries)
            size += one.size
            if together and (number > ENTRIES_MAX or size > BYTES_MAX):
                break
            self._waiting.popleft()
            if one.answer.done():
                number -= len(one.entries)
                size -= one.size
            else:
                together.append(one)
        return together

    async def _deal_with(self, together: list[_Call[Entry, Result]]) -> None:
        try:
            results = await self._run([entry for one in together for entry in one.entries])
        except StoreUnavailable as error:
            for one in together:
                # Each raises an error of its own.
                told = StoreUnavailable(str(error))
                told.__cause__ = error
                _fail(one.answer, told)
        except Exception as error:  # noqa: BLE001 - told to the callers
            if len(together) == 1:
                _fail(together[0].answer, error)
                return
            for one in together:
                await self._deal_with([one])
        else:
            first = 0
            for one in together:
                if not one.answer.done():
                    one.answer.set_result(results[first : first + len(one.entries)])
                first += len(one.entries)


def _fail(answer: asyncio.Future[list[Result]], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
