"""How long a client is waited for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_NEVER = math.inf


class Patience:
    """A deadline for what a client has to do next, always the same time away; when it passes, `give_up` is called.

    It is set at every request, so it costs next to nothing: the timer is left as it is, and moved when it rings.
    """

    __slots__ = ("_deadline", "_give_up", "_loop", "_patience_s", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, patience_s: float, give_up: Callable[[], None]) -> None:
        self._loop = loop
        self._patience_s = patience_s
        self._give_up = give_up
        self._deadline = _NEVER
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Expect something of the client, from now on."""
        self._deadline = self._loop.time() + self._patience_s
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience_s, self._ring)

    def stop(self) -> None:
        """Expect nothing: the client waits for us."""
        self._deadline = _NEVER

    def close(self) -> None:
        """Never call `give_up` again."""
        self._deadline = _NEVER
        # It knows the connection, which knows us: a circle would keep both until the collector comes by.
        self._give_up = _nothing
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        remaining_s = self._deadline - self._loop.time()
        if remaining_s <= 0:
            self._give_up()
        elif self._deadline != _NEVER:
            self._timer = self._loop.call_later(remaining_s, self._ring)


def _nothing() -> None:
    pass
