"""Plots as SVG: panels of bars that are compared, and panels of lines that show how something grows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH = 920
_PANEL_WIDTH = 440
_MARGIN = 20
_HEAD = 64
_BAR_HEIGHT = 18
_BAR_STEP = 24
_LABEL_WIDTH = 130
_VALUE_WIDTH = 80
_LINE_HEIGHT = 220
_PLOT_LEFT = 56
_PLOT_TOP = 46
_PLOT_BOTTOM = 44
_COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e")
_OURS, _THEIRS, _INK, _FAINT = "#0b7285", "#adb5bd", "#212529", "#868e96"
_LEGEND_CHARS = 150


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One value; ours stand out."""

    label: str
    value: float
    ours: bool = False


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """Values that are compared."""

    title: str
    unit: str
    note: str = ""
    bars: list[Bar]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A value at each of the panel's places; where one is missing, the line has a gap."""

    label: str
    values: list[float | None]


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Values that change with something; the places are labelled, and lie at equal distances."""

    title: str
    unit: str
    places: list[str]
    lines: list[Line]
    level: float | None = None
    """Where a dashed line says what is wanted."""


def draw_bars(title: str, legend: str, panels: Sequence[Bars]) -> str:
    """Draw panels of bars, two in a row."""
    heights = [_PLOT_TOP + _BAR_STEP * len(panel.bars) + _MARGIN for panel in panels]
    return _page(title, legend, [(_bars(panel), height) for panel, height in zip(panels, heights, strict=True)])


def draw_lines(title: str, legend: str, panels: Sequence[Lines]) -> str:
    """Draw panels of lines, two in a row."""
    return _page(title, legend, [(_lines(panel), _LINE_HEIGHT + _MARGIN) for panel in panels])


def _page(title: str, legend: str, panels: Sequence[tuple[list[str], int]]) -> str:
    parts: list[str] = []
    top = _HEAD
    for first in range(0, len(panels), 2):
        row = panels[first : first + 2]
        for column, (drawn, _) in enumerate(row):
            parts.append(f'<g transform="translate({_MARGIN + column * _PANEL_WIDTH} {top})">')
            parts += drawn
            parts.append("</g>")
        top += max(height for _, height in row)
    if len(legend) > _LEGEND_CHARS:
        legend = legend[: _LEGEND_CHARS - 1] + "…"
    size = f'width="{_WIDTH}" height="{top + _MARGIN}" viewBox="0 0 {_WIDTH} {top + _MARGIN}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            _text(_MARGIN, 28, title, size=18, bold=True),
            _text(_MARGIN, 46, legend, size=10, colour=_FAINT),
            *parts,
            "</svg>\n",
        ]
    )


def _bars(panel: Bars) -> list[str]:
    parts = [_text(0, 16, panel.title, size=14, bold=True)]
    parts.append(_text(0, 32, ", ".join(filter(None, (panel.unit, panel.note))), size=11, colour=_FAINT))
    most = max((bar.value for bar in panel.bars), default=0.0) or 1.0
    room = _PANEL_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH - _MARGIN
    for index, bar in enumerate(panel.bars):
        top = _PLOT_TOP + index * _BAR_STEP
        width = max(1.0, room * bar.value / most)
        colour = _OURS if bar.ours else _THEIRS
        parts.append(_text(_LABEL_WIDTH - 6, top + 13, bar.label, anchor="end", bold=bar.ours))
        parts.append(f'<rect x="{_LABEL_WIDTH}" y="{top}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{colour}"/>')
        parts.append(_text(_LABEL_WIDTH + width + 5, top + 13, short(bar.value)))
    return parts


def _lines(panel: Lines) -> list[str]:
    parts = [_text(0, 16, panel.title, size=14, bold=True), _text(0, 32, panel.unit, size=11, colour=_FAINT)]
    values = [value for line in panel.lines for value in line.values if value is not None]
    most = _round_up(max([*values, panel.level or 0.0], default=1.0))
    right, bottom = _PANEL_WIDTH - 2 * _MARGIN, _LINE_HEIGHT - _PLOT_BOTTOM
    height = bottom - _PLOT_TOP

    def y(value: float) -> float:
        return bottom - height * value / most

    for share in (0.0, 0.5, 1.0):
        at = y(most * share)
        parts.append(f'<line x1="{_PLOT_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dee2e6"/>')
        parts.append(_text(_PLOT_LEFT - 6, at + 4, short(most * share), anchor="end", colour=_FAINT))
    if panel.level is not None:
        at = y(panel.level)
        dashes = f'y1="{at:.1f}" y2="{at:.1f}" stroke="{_FAINT}" stroke-dasharray="4 3"'
        parts.append(f'<line x1="{_PLOT_LEFT}" x2="{right}" {dashes}/>')
    step = (right - _PLOT_LEFT - 30) / max(1, len(panel.places) - 1)
    places_x = [_PLOT_LEFT + 15 + index * step for index in range(len(panel.places))]
    shown = max(1, math.ceil(len(panel.places) / 8))
    for index, (x, place) in enumerate(zip(places_x, panel.places, strict=True)):
        if index % shown == 0:
            parts.append(_text(x, bottom + 16, place, anchor="middle", colour=_FAINT, size=11))
    for index, line in enumerate(panel.lines):
        colour = _COLOURS[index % len(_COLOURS)]
        points = [(x, y(value)) for x, value in zip(places_x, line.values, strict=True) if value is not None]
        path = " ".join(f"{x:.1f},{at:.1f}" for x, at in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{at:.1f}" r="3" fill="{colour}"/>' for x, at in points]
        parts.append(_text(_PLOT_LEFT + index * 120, bottom + 34, f"● {line.label}", colour=colour, size=11))
    return parts


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    colour: str = _INK,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text {place} font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def short(value: float) -> str:
    """Write a number in few characters."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def _round_up(value: float) -> float:
    """Return the next value that is easy to read."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in (1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * scale >= value * 0.9999)
