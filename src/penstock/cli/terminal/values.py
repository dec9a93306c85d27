"""Numbers, sizes, durations and times as people read them."""

from __future__ import annotations

from datetime import datetime, tzinfo

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNIT = 1_024
_COARSE_S = 10 * _MINUTE_S


def count(number: int) -> str:
    """Write a number with commas for thousands."""
    return f"{number:,}"


def counted(number: int, one: str, many: str = "") -> str:
    """Write a number with what it counts: `1 job`, `2 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(size_bytes: int) -> str:
    """Write a size with a binary unit."""
    amount, unit = float(size_bytes), 0
    while round(amount, 1) >= _UNIT and unit < len(_UNITS) - 1:
        amount /= _UNIT
        unit += 1
    return f"{size_bytes:,} B" if unit == 0 else f"{amount:,.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Write a duration with at most two units: `31 ms`, `0.3 s`, `42 s`, `15 min 55 s`, `2 h 06 min`."""
    seconds = max(seconds, 0.0)
    if 0 < seconds < 0.0995:
        return f"{max(round(seconds * 1_000), 1)} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    return whole_duration(seconds)


def whole_duration(seconds: float) -> str:
    """Write a duration in whole seconds at the finest."""
    whole = round(max(seconds, 0.0))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        minutes, rest = divmod(whole, _MINUTE_S)
        return f"{minutes} min {rest:02} s" if rest else f"{minutes} min"
    if whole < _DAY_S - _MINUTE_S / 2:
        hours, minutes = divmod(round(whole / _MINUTE_S), 60)
        return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"
    days, hours = divmod(round(whole / _HOUR_S), 24)
    return f"{counted(days, 'day')} {hours} h" if hours else counted(days, "day")


def coarse_duration(seconds: float) -> str:
    """Write a duration without seconds once it is long enough: how long something ran."""
    return whole_duration(seconds if seconds < _COARSE_S else seconds // _MINUTE_S * _MINUTE_S)


def time_of_day(at_ms: float, zone: tzinfo | None = None) -> str:
    """Write an instant as `03:14:07`, in local time unless another zone is named."""
    return datetime.fromtimestamp(at_ms / 1_000, zone).strftime("%H:%M:%S")
