"""A table of texts, for a terminal or as Markdown."""

from __future__ import annotations

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Headings and rows; what a row begins with is its name."""

    title: str
    headings: list[str]
    rows: list[list[str]]

    def to_rich(self) -> Table:
        """Return it for a terminal."""
        table = Table(
            title=Text(self.title),
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        for index, heading in enumerate(self.headings):
            table.add_column(Text(heading), justify="right" if index else "left", no_wrap=not index)
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def to_markdown(self) -> str:
        """Return it for a document."""
        marks = ["---"] + ["---:"] * (len(self.headings) - 1)
        lines = [f"**{self.title}**", "", *(_line(row) for row in (self.headings, marks, *self.rows))]
        return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
