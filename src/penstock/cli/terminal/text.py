"""Text in spans of one style, with widths in cells, and untrusted text made harmless."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Style = Literal["", "bold", "dim", "red", "green", "yellow", "blue", "magenta", "cyan", "bold red"]

_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that move the cursor, change the direction of text, or cannot be seen."""
_NO_CELL = frozenset({"Mn", "Me"})
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Span(NamedTuple):
    """A piece of text in one style. The text is harmless: whoever makes a span sees to that."""

    text: str
    style: Style = ""


Line = Sequence[Span]


def harmless(text: str) -> str:
    """Write control characters, and all that cannot be seen, as escapes. The result is one line."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) if _hidden(character) else character for character in text)


def _hidden(character: str) -> bool:
    return unicodedata.category(character) in _ESCAPED


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cells(text: str) -> int:
    """Count the cells that harmless text takes up in a terminal."""
    return len(text) if text.isascii() else sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in _NO_CELL:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cells_of_line(line: Line) -> int:
    """Count the cells of a line."""
    return sum(cells(span.text) for span in line)


def start_of(text: str, width: int) -> str:
    """Return as much of a text from its start as fits into the width."""
    if len(text) * 2 <= width:
        return text
    used = 0
    for index, character in enumerate(text):
        used += _cells_of(character)
        if used > width:
            return text[:index]
    return text


def end_of(text: str, width: int) -> str:
    """Return as much of a text up to its end as fits into the width."""
    used = 0
    for index in range(len(text) - 1, -1, -1):
        used += _cells_of(text[index])
        if used > width:
            return text[index + 1 :]
    return text


def cut_middle(text: str, width: int, mark: str) -> str:
    """Cut a name that is wider than this in the middle."""
    if cells(text) <= width:
        return text
    left = width - cells(mark)
    return start_of(text, left - left // 2) + mark + end_of(text, left // 2)


def cut_line(line: Line, width: int) -> list[Span]:
    """Cut a line off at its right end, so that a terminal of this width does not wrap it."""
    cut: list[Span] = []
    left = width
    for span in line:
        wide = cells(span.text)
        if wide > left:
            cut.append(Span(start_of(span.text, left), span.style))
            break
        cut.append(span)
        left -= wide
    return cut


_BOUND = "\N{NO-BREAK SPACE}"
_UNIT_GAP = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|days?|%)\b)")


def wrap(line: Line, width: int) -> list[list[Span]]:
    """Break a line at spaces into lines of at most this width; a word that is longer than that is broken too.

    A number and its unit stay together.
    """
    line = [Span(_UNIT_GAP.sub(_BOUND, span.text), span.style) for span in line]
    lines: list[list[Span]] = [[]]
    used = 0
    gap: list[Span] = []
    for part in _words(line):
        if not part[0].text.strip(" "):
            gap += part
            continue
        word = part
        wide = cells_of_line(word)
        if used and used + cells_of_line(gap) + wide > width:
            lines.append([])
            used, gap = 0, []
        lines[-1] += gap
        used += cells_of_line(gap)
        gap = []
        while wide > width - used:
            head, word = _split(word, max(width - used, 1))
            lines[-1] += head
            lines.append([])
            used, wide = 0, cells_of_line(word)
        lines[-1] += word
        used += wide
    return [[Span(span.text.replace(_BOUND, " "), span.style) for span in _merged(spans)] for spans in lines]


def _words(line: Line) -> Iterable[list[Span]]:
    """Take a line apart into runs of spaces, and words, which may have several styles."""
    word: list[Span] = []
    for span in line:
        rest = span.text
        while rest:
            space = rest[0] == " "
            end = next((index for index, character in enumerate(rest) if (character == " ") != space), len(rest))
            part, rest = Span(rest[:end], span.style), rest[end:]
            if not space:
                word.append(part)
                continue
            if word:
                yield word
                word = []
            yield [part]
    if word:
        yield word


def _split(word: list[Span], width: int) -> tuple[list[Span], list[Span]]:
    head = cut_line(word, width)
    if not any(span.text for span in head):
        head = [Span(word[0].text[0], word[0].style)]  # A wide character in a width of one.
    taken = sum(len(span.text) for span in head)
    tail: list[Span] = []
    for span in word:
        if taken < len(span.text):
            tail.append(Span(span.text[taken:], span.style))
        taken = max(0, taken - len(span.text))
    return head, tail


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in spans:
        if merged and merged[-1].style == span.style:
            merged[-1] = Span(merged[-1].text + span.text, span.style)
        elif span.text:
            merged.append(span)
    return merged
