"""Environment variables with types and ranges: a bad value is refused with its name, never replaced."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


class BadValue(ValueError):
    """A variable or flag has a value that makes no sense. The message names it."""


def whole(name: str, text: str, *, least: int = 0, most: int | None = None) -> int:
    """Read a whole number."""
    if not _WHOLE.fullmatch(text.strip()):
        raise BadValue(f"{name} must be a whole number, not {text!r}.")
    return _within(name, int(text), least, most)


def real(name: str, text: str, *, least: float = 0.0, most: float | None = None) -> float:
    """Read a number."""
    try:
        number = float(text)
    except ValueError:
        raise BadValue(f"{name} must be a number, not {text!r}.") from None
    if not math.isfinite(number):
        raise BadValue(f"{name} must be a finite number, not {text!r}.")
    return _within(name, number, least, most)


def switch(name: str, text: str) -> bool:
    """Read yes or no: any whole number but 0 is yes, and so are true, yes and on."""
    lowered = text.strip().lower()
    if lowered in _YES | _NO:
        return lowered in _YES
    if _WHOLE.fullmatch(lowered):
        return int(lowered) != 0
    raise BadValue(f"{name} must be 0 or 1, not {text!r}.")


def names(name: str, text: str, allowed: frozenset[str] | None = None) -> tuple[str, ...]:
    """Read names, separated by commas."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for one in found:
        if allowed is not None and one not in allowed:
            raise BadValue(f"{name} must be of {', '.join(sorted(allowed))}, not {one!r}.")
    return found


def _within(name: str, number: T, least: T, most: T | None) -> T:
    if number < least or (most is not None and number > most):  # type: ignore[operator] # int or float, both alike
        wanted = f"{least} or more" if most is None else f"{least} to {most}"
        raise BadValue(f"{name} must be {wanted}, not {number}.")
    return number


class Variables:
    """Reads variables of an environment. One that is empty counts as unset."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str = "") -> str:
        return self._environment.get(name) or default

    def whole(self, name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
        given = self.text(name)
        return whole(name, given, least=least, most=most) if given else default

    def real(self, name: str, default: float, *, least: float = 0.0, most: float | None = None) -> float:
        given = self.text(name)
        return real(name, given, least=least, most=most) if given else default

    def switch(self, name: str) -> bool:
        return switch(name, self.text(name))

    def names(self, name: str, allowed: frozenset[str] | None = None) -> tuple[str, ...]:
        return names(name, self.text(name), allowed)
