"""The one name that was probably meant, for "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable

DISTANCE_MAX = 2


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that differs by the fewest letters, at most two; None if no name, or nothing of it, is near."""
    ranked = sorted((distance(word, name), name) for name in names if abs(len(name) - len(word)) <= DISTANCE_MAX)
    if not ranked:
        return None
    letters, name = ranked[0]
    return name if letters <= DISTANCE_MAX and letters < max(len(word), len(name)) else None


def distance(one: str, other: str) -> int:
    """Count the letters to insert, delete, replace or swap with their neighbour to turn one word into the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            steps = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                steps = min(steps, last[j - 2] + 1)
            row.append(steps)
    return row[-1]
