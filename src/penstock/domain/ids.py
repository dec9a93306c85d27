"""Where identifiers come from, so that a test can say what they will be."""

from __future__ import annotations

import itertools
import os
from typing import Protocol
from uuid import UUID


class IdSource(Protocol):
    """Makes identifiers that never repeat."""

    def new_id(self) -> str:
        """Make a UUID in its usual text form, in lower case."""


class RandomIds:
    """Random (version 4) UUIDs."""

    def new_id(self) -> str:
        """Make a random UUID."""
        try:
            return _ahead.pop()
        except IndexError:
            _make_ahead()
            return _ahead.pop()


# uuid.uuid4() takes ten times as long, and every message and every request needs one: so they are made by the hundred.
_AHEAD = 256
_UUID_BYTES = 16
_BLANK = "00000000-0000-0000-0000-000000000000 "
_RANDOM_BITS = int.from_bytes(UUID("ffffffff-ffff-0fff-3fff-ffffffffffff").bytes * _AHEAD)
_VERSION_BITS = int.from_bytes(UUID("00000000-0000-4000-8000-000000000000").bytes * _AHEAD)
_DIGIT_PLACES = [place for place, character in enumerate(_BLANK) if character == "0"]

_ahead: list[str] = []
# Two processes must not hand out the same ones.
os.register_at_fork(after_in_child=_ahead.clear)


def _make_ahead() -> None:
    """Make ids: all their first digits at once, then all their second ones, and so on."""
    bits = int.from_bytes(os.urandom(_UUID_BYTES * _AHEAD)) & _RANDOM_BITS | _VERSION_BITS
    digits = bits.to_bytes(_UUID_BYTES * _AHEAD).hex().encode()
    text = bytearray(_BLANK.encode() * _AHEAD)
    for index, place in enumerate(_DIGIT_PLACES):
        text[place :: len(_BLANK)] = digits[index :: len(_DIGIT_PLACES)]
    _ahead.extend(text.decode().split())


class CountedIds:
    """UUIDs that count up from one, for tests whose outcome must repeat."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def new_id(self) -> str:
        """Make the next UUID."""
        return str(UUID(int=next(self._count)))
