"""One way to call a client in tests, whether its async or its sync methods are meant."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from penstock import Penstock


class Blocking:
    """The sync methods of a client, each called on a thread without an event loop and awaited."""

    def __init__(self, face: Any) -> None:
        self._face = face

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._face, name)
        if not callable(found):
            return found if isinstance(found, str | int | None) else Blocking(found)
        if name == "stream":
            return lambda *arguments, **options: BlockingStream(found(*arguments, **options))
        if inspect.isgeneratorfunction(found):
            return lambda *arguments, **options: _on_thread(found(*arguments, **options))

        async def call(*arguments: Any, **options: Any) -> Any:
            return await asyncio.to_thread(found, *arguments, **options)

        return call


class BlockingStream(Blocking):
    """A stream of offers that is read on threads."""

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._face.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self._face.__exit__, *error)

    def __aiter__(self) -> AsyncIterator[Any]:
        return _on_thread(iter(self._face))


async def _on_thread(items: Iterator[Any]) -> AsyncIterator[Any]:
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item


def face_of(app: Penstock, kind: str) -> Any:
    return app if kind == "async" else Blocking(app.sync)
