"""Errors, refusals and warnings: what happened, why, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Line, Span, Style, cells_of_line, harmless, wrap

Kind = Literal["error", "refused", "denied", "warning"]

_STYLES: dict[Kind, Style] = {"error": "bold red", "refused": "bold red", "denied": "bold red", "warning": "yellow"}


def problem(
    screen: Screen,
    kind: Kind,
    what: str | Line,
    *,
    why: Sequence[str] = (),
    hint: str = "",
) -> list[list[Span]]:
    """Lay out `kind: what happened.`, then `why`, then `try`. Text of others is made harmless."""
    what = [Span(harmless(what))] if isinstance(what, str) else what
    lines = _labelled(screen, [Span(f"{kind}:", _STYLES[kind]), Span(" ")], what)
    for index, line in enumerate(why):
        label = [Span("  "), Span("why" if index == 0 else "   ", "dim"), Span("  ")]
        lines += _labelled(screen, label, [Span(harmless(line), "" if index == 0 else "dim")])
    if hint:
        lines += _labelled(screen, [Span("  "), Span("try", "dim"), Span("  ")], [Span(harmless(hint))])
    return lines


def excerpt(screen: Screen, lines: Sequence[tuple[int, str]], marked: str, remark: Line) -> list[list[Span]]:
    """Lay out lines of a file with their numbers, and below the last one a mark under `marked`, with a remark."""
    wide = len(str(lines[-1][0]))
    rule = Span(f" {screen.signs.rule} ", "dim")
    laid: list[list[Span]] = [
        [Span(f"  {number:>{wide}}", "dim"), rule, Span(harmless(text).replace("…", screen.signs.ellipsis))]
        for number, text in lines
    ]
    before = harmless(lines[-1][1]).find(marked)
    mark = " " * max(before, 0) + "^" * len(marked)
    laid.append([Span(" " * (2 + wide)), rule, Span(mark, "red"), *remark])
    return laid


def did_you_mean(name: str) -> list[Span]:
    """Write the question after a fact: the name in bold."""
    return [Span(" Did you mean "), Span(harmless(name), "bold"), Span("?")]


def _labelled(screen: Screen, label: list[Span], text: Line) -> list[list[Span]]:
    """Write a text after its label. In a terminal it wraps under itself; programs get it in one line."""
    if not screen.terminal:
        return [[*label, *text]]
    margin = cells_of_line(label)
    wrapped = wrap(text, screen.width - margin)
    return [[*(label if index == 0 else [Span(" " * margin)]), *line] for index, line in enumerate(wrapped)]
