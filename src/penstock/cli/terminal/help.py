"""`--help`: what a command does, how it is called, and its flags, without boxes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.terminal.screen import WIDTH_MIN, Screen
from penstock.cli.terminal.text import Span, cells, harmless, wrap

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions, RenderableType

_UNTITLED = frozenset({"Arguments", "Commands", "Parameters"})
"""The groups that cyclopts makes by itself: their headings would say nothing."""
_MARGIN, _GAP = 2, 2
_EMPTY = "()"
_ONE_LINE = 10_000
"""A width in cells at which no paragraph is broken."""


class Help:
    """Writes the help of a command for cyclopts: 80 columns, and colours where they are wanted."""

    def __init__(self, label_cells: int = 0) -> None:
        """Align descriptions after labels of this width at least, so that all groups of a command have one edge."""
        self._label_cells = label_cells
        self._usage = ""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: RenderableType | None) -> None:
        """Keep how a command is called. What it does comes first, and cyclopts passes that next."""
        called = " ".join(" ".join(_paragraphs(console, options, usage)).removeprefix("Usage:").split())
        bare = called.replace(" [OPTIONS]", "")
        self._usage = bare if bare == called else f"{bare} [flags]"

    def render_description(self, console: Console, options: ConsoleOptions, description: RenderableType | None) -> None:
        """Write what a command does, and then how it is called."""
        lines: list[list[Span]] = []
        for paragraph in _paragraphs(console, options, description):
            lines += [*wrap([Span(harmless(paragraph))], WIDTH_MIN), []]
        lines.append([Span(harmless(self._usage), "bold")])
        Screen(console.file).write(lines)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Write the flags or commands of a group, after a blank line."""
        if not panel.entries:
            return
        lines: list[list[Span]] = [[]]
        title = " ".join(_paragraphs(console, options, panel.title))
        if title not in _UNTITLED:
            lines.append([Span(harmless(title), "dim")])
        rows = [(_label(entry), entry) for entry in panel.entries]
        wide = max(self._label_cells, *(cells(label) for label, _ in rows))
        edge = _MARGIN + wide + _GAP
        for label, entry in rows:
            for index, line in enumerate(wrap(_description(console, options, entry), WIDTH_MIN - edge)):
                before = " " * _MARGIN + label if index == 0 else ""
                lines.append([Span(before + " " * (edge - cells(before))), *line])
        Screen(console.file).write(lines)


def _label(entry: HelpEntry) -> str:
    """Write a flag as it is typed, with its value. One that is on by default is listed as what turns it off."""
    names = (*entry.positive_names, *entry.positive_shorts)
    if entry.default == "True" and entry.negative_names:
        names = entry.negative_names
    label = harmless(entry.positional_label or ", ".join(names))
    return f"{label} {entry.metavar.removesuffix('...')}" if names and entry.metavar else label


def _description(console: Console, options: ConsoleOptions, entry: HelpEntry) -> list[Span]:
    """Write what a flag does, and its default if that says something."""
    text = " ".join(_paragraphs(console, options, entry.description))
    line = [Span(harmless(text))]
    if entry.default and entry.metavar and entry.default != _EMPTY:
        # Bound, so that no line ends between the two.
        line += [Span("  "), Span(f"default\N{NO-BREAK SPACE}{harmless(entry.default)}", "dim")]
    return line


def _paragraphs(console: Console, options: ConsoleOptions, text: RenderableType | None) -> Iterator[str]:
    """Read the paragraphs of a text of cyclopts, each as one line and without its styles."""
    if text is None:
        return
    written = "".join(segment.text for segment in console.render(text, options.update(width=_ONE_LINE)))
    lines: list[str] = []
    for line in [*written.split("\n"), ""]:
        if line.strip():
            lines.append(line.strip())
        elif lines:
            yield " ".join(lines)
            lines = []
