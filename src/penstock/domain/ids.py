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
        # uuid.uuid4() builds the same value in three times the time, and every message needs one.
        digits = os.urandom(16).hex()
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class CountedIds:
    """UUIDs that count up from one, for tests whose outcome must repeat."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def new_id(self) -> str:
        """Make the next UUID."""
        return str(UUID(int=next(self._count)))
