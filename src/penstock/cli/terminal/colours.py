"""Colours: when they are on, and the codes of a terminal for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from penstock.cli.terminal.text import Line, Style

ColorChoice = Literal["auto", "always", "never"]

_RESET = "\x1b[0m"
_CODES: dict[Style, str] = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[34m",
    "magenta": "\x1b[35m",
    "cyan": "\x1b[36m",
    "bold red": "\x1b[1;31m",
}


def colours_wanted(choice: ColorChoice, environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Decide on colours: a flag overrides the environment, and `NO_COLOR` overrides `FORCE_COLOR`."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    return terminal and environment.get("TERM") != "dumb"


def painted(line: Line, *, colours: bool) -> str:
    """Write a line, with the codes of its styles if there are colours."""
    if not colours:
        return "".join(span.text for span in line)
    return "".join(f"{_CODES[style]}{text}{_RESET}" if style and text else text for text, style in line)
