"""Consumers that work at different speeds, as machines do: by the seed, so that a run can be repeated."""

from __future__ import annotations

import random
from string import ascii_uppercase

FASTEST = 0.1
"""How long the fastest consumer works, as a part of the slowest one's time."""
_SPREAD = 0.85


def consumer_names(count: int) -> list[str]:
    """Return A to Z, and numbers for more."""
    return [ascii_uppercase[n] if count <= len(ascii_uppercase) else f"c{n + 1}" for n in range(count)]


def uneven_delays(count: int, slowest_s: float, seed: int) -> dict[str, float]:
    """Return how long each consumer works on a message.

    One is the slowest, one takes a tenth of its time, and the others are in between. The seed decides which.
    """
    chance = random.Random(seed)  # noqa: S311 - speeds are no secret
    shares = [1.0]
    for place in range(count - 1):
        share = FASTEST + place / max(count - 1, 1) * (1 - FASTEST)
        shares.append(share * chance.uniform(_SPREAD, 1.0))
    chance.shuffle(shares)
    return {name: round(slowest_s * share, 3) for name, share in zip(consumer_names(count), shares, strict=True)}
