"""Durations as people write them: a number of seconds, a text such as "7d" or "1h30m", or a timedelta."""

from __future__ import annotations

import math
import re
from datetime import timedelta

Duration = float | str | timedelta

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|w)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|min|s|m|h|d|w)\s*)+")


def seconds(given: Duration, what: str = "A duration") -> float:
    """Return a duration in seconds; raises `ValueError`, which begins with `what`, unless it is one."""
    if isinstance(given, timedelta):
        value = given.total_seconds()
    elif isinstance(given, str):
        value = _read(given, what)
    elif isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError(f'{what} is a number of seconds, a text such as "90s" or "7d", or a timedelta, not {given!r}.')  # noqa: TRY004 - one error for whatever is wrong with it
    else:
        value = float(given)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what} cannot be negative or infinite, and {given!r} is.")
    return value


def milliseconds(given: Duration, what: str = "A duration") -> int:
    """Return a duration in milliseconds, at least one unless it is zero; raises `ValueError`."""
    value = seconds(given, what)
    return max(round(value * 1_000), 1) if value else 0


def _read(text: str, what: str) -> float:
    stripped = text.strip().lower()
    if _WHOLE.fullmatch(stripped):
        return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(stripped))
    try:
        return float(stripped)
    except ValueError:
        raise ValueError(f'{what} is written like "500ms", "90s", "1h30m" or "7d", not {text!r}.') from None
