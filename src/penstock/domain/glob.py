"""Patterns in which `*` stands for any text and `?` for any one character, matched in time linear in the text."""

from __future__ import annotations

import functools
import re

ANYTHING = "*"
_ANY_CHARACTER = "?"
TEXT_CHARACTERS_MAX = 2_048
"""No name or ARN is longer. Longer text is like no pattern but `*`, and is turned away before it is looked at."""
_PARTS_REMEMBERED = 4_096


def matches(pattern: str, text: str) -> bool:
    """Return whether the whole text is like the pattern."""
    if pattern in {ANYTHING, text}:
        return True
    if not len(pattern) - pattern.count(ANYTHING) <= len(text) <= TEXT_CHARACTERS_MAX:
        return False
    head, *parts = pattern.split(ANYTHING)
    if not parts:
        return len(head) == len(text) and _find(head, text, 0, len(text)) == 0
    tail = parts.pop()
    start, end = len(head), len(text) - len(tail)
    if _find(head, text, 0, start) != 0 or _find(tail, text, end, len(text)) != end:
        return False
    # The leftmost place of a part leaves most room for those after it, so no choice is ever taken back.
    for part in parts:
        found = _find(part, text, start, end)
        if found < 0:
            return False
        start = found + len(part)
    return True


def _find(part: str, text: str, start: int, end: int) -> int:
    """Return where a part without stars first stands between `start` and `end`, or -1."""
    if _ANY_CHARACTER not in part:
        return text.find(part, start, end)
    found = _expression(part).search(text, start, end)
    return found.start() if found else -1


@functools.lru_cache(maxsize=_PARTS_REMEMBERED)
def _expression(part: str) -> re.Pattern[str]:
    # An expression without repetition has nothing to try again.
    return re.compile(re.escape(part).replace(r"\?", "."), re.DOTALL)
