"""Log lines for people: `time sign word  who  what`, with the rest under their text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Line, Span, wrap

WORD_CELLS = 10
TEXT_COLUMN = 8 + 1 + 1 + 1 + WORD_CELLS
"""How many cells stand before the text: the time, the sign, the word, and the spaces between them."""
_LABEL = "  "
_MARGIN = Span(" " * TEXT_COLUMN)


def log_line(screen: Screen, time: str, state: str, word: str, texts: Iterable[Line]) -> list[list[Span]]:
    """Lay out one event: its first text beside the word, the others below, all of them wrapped under their text."""
    head = [Span(time, "dim"), Span(" "), screen.signs.of(state), Span(f" {word:<{WORD_CELLS - 1}} ")]
    laid: list[list[Span]] = []
    for text in texts:
        laid += wrap(text, screen.width - TEXT_COLUMN)
    return [[*(head if index == 0 else [_MARGIN]), *line] for index, line in enumerate(laid or [[]])]


def facts(screen: Screen, rows: Sequence[tuple[str, Line]]) -> list[list[Span]]:
    """Lay out facts under each other: dim labels in one column, indented by two. A label may be empty."""
    wide = max((len(label) for label, _ in rows), default=0) + 2
    laid: list[list[Span]] = []
    for label, value in rows:
        for index, line in enumerate(wrap(value, screen.width - wide - len(_LABEL))):
            shown = label if index == 0 else ""
            laid.append([Span(_LABEL), Span(shown, "dim"), Span(" " * (wide - len(shown))), *line])
    return laid
