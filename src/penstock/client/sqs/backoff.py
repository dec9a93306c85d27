"""When a message that failed is received again."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from penstock.client.durations import Duration, seconds
from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.delivery import HIDDEN_S_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

_DOUBLINGS_MAX = 64


class Backoff:
    """Waits of `first`, twice that, and so on up to `longest`, of which a random half is left out.

    SQS counts visibility in whole seconds, so a wait is rounded up; zero means at once.
    """

    def __init__(self, first: Duration, longest: Duration, *, chance: Callable[[], float] = random.random) -> None:
        self._first_s = seconds(first, "backoff")
        self._longest_s = seconds(longest, "max_backoff")
        if self._longest_s > HIDDEN_S_MAX or self._first_s > self._longest_s:
            raise ConsumerInvalid(
                f"backoff is at most max_backoff, and that at most 12 hours, not {first!r} and {longest!r}."
            )
        self._chance = chance

    def after(self, receive_count: int) -> int:
        """Return for how many seconds to hide a message that failed at its n-th receive."""
        ceiling_s = min(self._first_s * 2.0 ** min(receive_count - 1, _DOUBLINGS_MAX), self._longest_s)
        return math.ceil(ceiling_s * (0.5 + 0.5 * self._chance()))
