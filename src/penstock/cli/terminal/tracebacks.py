"""Tracebacks as Python writes them: your own frames in ink, frames of libraries dim."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

from penstock.cli.terminal.text import Span, Style, harmless

LINES_MAX = 100
"""Longer tracebacks lose lines in their middle."""
_LINES_AT_START = 40
_INDENT = Span("  ")
_FRAME = re.compile(r'(?P<before>\s+File ")(?P<path>[^"]*)(?P<after>", line \d+.*)')
_MARKS = re.compile(r"\s*[~^][~^\s]*")
_KIND = re.compile(r"(?P<kind>[A-Za-z_][\w.<>]*)(?P<rest>:.*|)")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_HEADING = "Traceback (most recent call last):"
_OURS = str(Path(__file__).parents[2])
_LIBRARIES = (
    f"{_OURS}/",
    "penstock/",
    *(f"{place}/" for place in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}),
)


def traceback_lines(details: str, left_out: str = "…") -> list[list[Span]]:
    """Lay a traceback out from column 3. Lines that only mark a part of the line above are left out."""
    lines = [line for line in details.strip("\n").splitlines() if not _MARKS.fullmatch(line)]
    if len(lines) > LINES_MAX:
        missing = len(lines) - LINES_MAX
        tail = lines[len(lines) - (LINES_MAX - _LINES_AT_START) :]
        lines = [*lines[:_LINES_AT_START], f"  {left_out} {missing} lines left out", *tail]
    laid: list[list[Span]] = []
    style: Style = "dim"
    last = max((index for index, line in enumerate(lines) if not line.startswith(" ")), default=-1)
    for index, line in enumerate(lines):
        frame = _FRAME.fullmatch(line)
        if frame is not None:
            style = "dim" if of_library(frame["path"]) else ""
            line = f"{frame['before']}{short_path(frame['path'])}{frame['after']}"  # noqa: PLW2901 - the same, shorter
        elif not line.startswith(" "):
            kind = _KIND.fullmatch(line) if index == last else None
            if kind is not None:
                laid.append([_INDENT, *_failure(kind["kind"], kind["rest"])])
                style = ""
                continue
            style = "dim" if line == _HEADING or index < last else ""
        laid.append([_INDENT, Span(harmless(line), style)])
    return laid


def failure_line(kind: str, message: str) -> list[Span]:
    """Write `Kind: message` in one style: within a log line the sign has the colour."""
    return [Span(f"{harmless(kind)}: {harmless(message)}" if message else harmless(kind))]


def of_library(path: str) -> bool:
    """Return whether a file is part of Python, of an installed package or of Penstock."""
    plain = path.replace("\\", "/")
    if plain.startswith("<") or _PACKAGES.match(plain):
        return True
    return plain.startswith(_LIBRARIES)


def short_path(path: str) -> str:
    """Shorten a path: of an installed package to its name there, of your own code to the way from here."""
    plain = path.replace("\\", "/")
    if packages := _PACKAGES.match(plain):
        return plain[packages.end() :]
    if plain.startswith(_OURS + "/"):
        return "penstock" + plain[len(_OURS) :]
    try:
        here = f"{Path.cwd()}/"
    except OSError:
        return path
    return plain.removeprefix(here)


def _failure(kind: str, rest: str) -> list[Span]:
    shown, colon = harmless(kind), rest[:1]
    return [Span(shown + colon, "bold red"), Span(harmless(rest[1:]))]
