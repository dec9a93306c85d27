"""The picture of a run as one SVG file that looks right by itself, in light and dark, without any other file."""

from __future__ import annotations

import math
import re
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from penstock.lab.report.pictures import DRAWN
from penstock.lab.report.scene import scenes
from penstock.lab.report.style import SPRITE
from penstock.lab.report.svg import render
from penstock.lab.report.wording import VERDICT_LOOKS, verdict_words

if TYPE_CHECKING:
    from penstock.lab.report.scene import Drawing, Key, Scene, Strip
    from penstock.lab.report.svg import Canvas
    from penstock.lab.run import Run

WIDTH = 960
_MARGIN = 20
_GAP = 40
_CELL_PX = 6.4
"""How wide a character of the legend is, at most."""
_TOKEN = re.compile(r"--([\w-]+):\s*light-dark\(oklch\(([^)]*)\),\s*oklch\(([^)]*)\)\)")
_WORDS = {"done": "done", "lost": "dead", "unknown": "paused"}
_MARKS = {"done": "delete", "dead": "crash", "paused": "unknown"}


def picture_svg(run: Run) -> str:
    """Draw the protected variant beside the broken one, with the legend of both below."""
    drawn = [(scene, DRAWN[run.picture](scene, thumb=False)) for scene in scenes(run)]
    wide = (WIDTH - 2 * _MARGIN - _GAP * (len(drawn) - 1)) / len(drawn)
    parts, height = [], 0.0
    for place, (scene, drawing) in enumerate(drawn):
        panel, tall = _panel(run, scene, drawing, wide)
        parts.append(
            f'<svg x="{_MARGIN + place * (wide + _GAP):g}" y="{_MARGIN}" width="{wide:g}" {_OVER}>{panel}</svg>'
        )
        height = max(height, tall)
    keys = {key.text: key for _, drawing in drawn for key in drawing.keys}
    legend, below = _legend(list(keys.values()), WIDTH - 2 * _MARGIN)
    y = _MARGIN + height + 14
    parts.append(f'<svg x="{_MARGIN}" y="{y:g}" {_OVER}>{legend}</svg>')
    total = round(y + below + _MARGIN - 6)
    words = f"{run.scenario}: {run.rule} " + " ".join(strip.alt for _, drawing in drawn for strip in drawing.strips)
    symbols = SPRITE.partition(">")[2].rpartition("</svg>")[0].strip()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" width="{WIDTH}" height="{total}" '
        f'role="img">\n<title>{escape(words)}</title>\n<style>\n{_style()}</style>\n<defs>\n{symbols}\n</defs>\n'
        f'<rect class="paper" width="{WIDTH}" height="{total}" rx="6"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


_OVER = 'overflow="visible"'


def _panel(run: Run, scene: Scene, drawing: Drawing, wide: float) -> tuple[str, float]:
    """Return one variant and its height."""
    variant = scene.variant
    look = _WORDS[VERDICT_LOOKS[variant.verdict]]
    words = verdict_words(variant, must_break=run.broke_as_it_must)
    if run.not_observed is not None and variant.verdict != "failed":
        look, words = "paused", "not observed here"
    parts = [
        f'<line class="bar {look}" x1="0" x2="{wide:g}" y1="1" y2="1"/>',
        f'<use class="m {look}" href="#m-{_MARKS[look]}" x="1" y="13" width="14" height="14"/>',
        _text("title", 26, 25, f"{variant.name.capitalize()}: {words}"),
        _text("aside", wide, 25, variant.setting, "end"),
        _text("quiet", 26, 44, variant.summary),
    ]
    y = 64.0
    if drawing.title:
        unit = f'<tspan class="aside" dx="6" font-weight="400">{escape(drawing.unit)}</tspan>'
        parts.append(f'<text class="head" x="0" y="{y + 8:g}">{escape(drawing.title)}{unit}</text>')
        y += 22
    label, end = _columns(drawing)
    if drawing.axis is not None and not drawing.axis_below:
        parts.append(_canvas(drawing.axis, label, y, wide - label - end))
        y += drawing.axis.height
    for strip in drawing.strips:
        parts += _strip(strip, y, label, end, wide, ruled=label > 0)
        y += strip.canvas.height + (4 if label else 0)
    if drawing.axis is not None and drawing.axis_below:
        parts.append(_canvas(drawing.axis, label, y, wide - label - end))
        y += drawing.axis.height
    if drawing.note:
        parts.append(_text("quiet", 0, y + 18, drawing.note))
        y += 22
    return "".join(parts), y


def _columns(drawing: Drawing) -> tuple[float, float]:
    """Return the room for names before the strips, and for what came of each behind them."""
    labels = [strip.label for strip in drawing.strips if strip.label]
    ends = [strip.end for strip in drawing.strips if strip.end]
    label = max((len(text) for text in labels), default=0) * _CELL_PX + 12 if labels else 0
    end = max((len(text) for text in ends), default=0) * _CELL_PX + 12 if ends else 0
    return max(label, 34) if label else 0, end


def _strip(strip: Strip, y: float, label: float, end: float, wide: float, *, ruled: bool) -> list[str]:
    tall = strip.canvas.height
    parts = [f'<line class="rule" x1="0" x2="{wide:g}" y1="{y:g}" y2="{y:g}"/>'] if ruled else []
    parts.append(_canvas(strip.canvas, label, y + (2 if ruled else 0), wide - label - end))
    if strip.label:
        parts.append(_text("head", 0, y + tall / 2 + 5, strip.label))
    if strip.end:
        parts.append(_text("hot" if strip.bad else "quiet", wide, y + tall / 2 + 5, strip.end, "end"))
    return parts


def _canvas(canvas: Canvas, x: float, y: float, wide: float) -> str:
    inner = "".join(render(shape, height=canvas.height) for shape in canvas.shapes)
    return f'<svg x="{x:g}" y="{y:g}" width="{wide:g}" height="{canvas.height:g}" {_OVER}>{inner}</svg>'


def _legend(keys: list[Key], wide: float) -> tuple[str, float]:
    """Return the legend in as many rows as it takes, and its height."""
    parts, x, y = [], 0.0, 12.0
    for key in keys:
        room = 20 + len(key.text) * _CELL_PX + 14
        if x and x + room > wide:
            x, y = 0.0, y + 20
        look = key.look.replace(" dash", "")
        if key.mark is not None:
            parts.append(
                f'<use class="m {look}" href="#m-{key.mark}" x="{x:g}" y="{y - 11:g}" width="13" height="13"/>'
            )
        elif key.field:
            parts.append(f'<rect class="f {look}" x="{x + 1:g}" y="{y - 10:g}" width="11" height="11" rx="1.5"/>')
        elif look == "late" and "dash" not in key.look:
            parts.append(f'<line class="late-work" x1="{x:g}" x2="{x + 14:g}" y1="{y - 4:g}" y2="{y - 4:g}"/>')
        else:
            parts.append(f'<path class="ln {key.look}" d="M{x:g} {y - 4:g}h14"/>')
        parts.append(_text("legend", x + 19, y, key.text))
        x += room
    return "".join(parts), y if keys else 0.0


def _text(look: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{look}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


@cache
def _style() -> str:
    """Return the shapes' rules, with the colours of both themes as every viewer knows them."""
    here = resources.files("penstock.lab.report")
    tokens = _TOKEN.findall(here.joinpath("penstock.css").read_text("utf-8"))
    light = " ".join(f"--{name}: {_hex(value)};" for name, value, _ in tokens)
    dark = " ".join(f"--{name}: {_hex(value)};" for name, _, value in tokens)
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n" + here.joinpath(
        "picture.css"
    ).read_text("utf-8")


def _hex(oklch: str) -> str:
    """Convert a colour from OKLCH to sRGB, as CSS Color 4 defines it."""
    lightness, chroma, hue = (float(part) for part in oklch.split())
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * min(max(_gamma(part), 0), 1)):02x}" for part in linear)


def _gamma(part: float) -> float:
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
