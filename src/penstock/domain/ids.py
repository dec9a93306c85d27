"""Where identifiers come from, so that a test can say what they will be."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable


class IdSource(Protocol):
    """Makes identifiers that never repeat."""

    def new_id(self) -> str:
        """Make a UUID in its usual text form, in lower case."""


class OrderedIds:
    """UUIDs in the order of time (version 7): what is stored together is indexed together, so a store writes less.

    Each is greater than the one before, also if the clock stands still or steps back: 48 bits of milliseconds, 12 bits
    that count within one, and 62 that are random. `wall_ms` says what time it is.
    """

    def __init__(self, wall_ms: Callable[[], int] | None = None) -> None:
        self._wall_ms = wall_ms or SystemClock().wall_ms
        self._ms = -1
        self._head = ""
        self._count = 0

    def new_id(self) -> str:
        """Make the next UUID."""
        now_ms = self._wall_ms()
        self._count += 1
        if now_ms > self._ms or self._count > _COUNT_MAX:
            self._ms = max(now_ms, self._ms + 1)
            self._count = 0
            digits = f"{self._ms:012x}"
            self._head = f"{digits[:8]}-{digits[8:]}-7"
        try:
            tail = _ahead.pop()
        except IndexError:
            _make_ahead()
            tail = _ahead.pop()
        return f"{self._head}{self._count:03x}-{tail}"


_COUNT_MAX = 0xFFF

# A call of the system for each id takes longer than all the rest, and every message and every request needs an id: so
# the random ends are made by the hundred. As in "8a3c-0123456789ab", with the bits of the variant.
_AHEAD = 256
_TAIL_BYTES = 8
_VARIANTS = "89ab"

_ahead: list[str] = []
# Two processes must not hand out the same ones.
os.register_at_fork(after_in_child=_ahead.clear)


def _make_ahead() -> None:
    digits = os.urandom(_TAIL_BYTES * _AHEAD).hex()
    for place in range(0, len(digits), 2 * _TAIL_BYTES):
        variant = _VARIANTS[int(digits[place], 16) & 3]
        _ahead.append(f"{variant}{digits[place + 1 : place + 4]}-{digits[place + 4 : place + 16]}")


class CountedIds:
    """UUIDs that count up from one, for tests whose outcome must repeat."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def new_id(self) -> str:
        """Make the next UUID."""
        return str(UUID(int=next(self._count)))
