"""Named places where a test can step in: to fail there, or to do something in between."""

from __future__ import annotations

import inspect
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Failpoints:
    """The places that are armed. In production none is, and passing one costs a look at an empty table."""

    def __init__(self) -> None:
        self._actions: dict[str, deque[Callable[[], Awaitable[None] | None]]] = {}

    def __bool__(self) -> bool:
        """Tell whether any place is armed."""
        return bool(self._actions)

    def arm(self, place: str, action: Callable[[], Awaitable[None] | None]) -> None:
        """Run `action` the next time that `place` is passed, once. What it raises is raised there."""
        self._actions.setdefault(place, deque()).append(action)

    def armed(self, place: str) -> bool:
        """Tell whether an action is still waiting at `place`."""
        return place in self._actions

    async def reach(self, place: str) -> None:
        """Pass `place`."""
        actions = self._actions.get(place)
        if actions is None:
            return
        action = actions.popleft()
        if not actions:
            del self._actions[place]
        result = action()
        if inspect.isawaitable(result):
            await result
