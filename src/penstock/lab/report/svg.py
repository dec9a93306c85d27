"""Drawing: shapes as data, and the one place that writes them as SVG, escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

THUMB_WIDTH, THUMB_HEIGHT = 208, 44
_MARGIN = 5.0
_CURVE_WIDTH = 1_000

Tag = Literal["line", "rect", "circle", "path", "use", "text", "curve"]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One element: its attributes, what it says when pointed at, and the event that it leads to."""

    tag: Tag
    attributes: dict[str, str]
    text: str | None = None
    title: str | None = None
    event: int | None = None


class Canvas:
    """Collects shapes. `x` is a part of the width from 0 to 1; `y` is in pixels.

    A large canvas writes x in percent, so that marks and words keep their size at any width; a thumbnail is of a fixed
    width. A picture draws on both with the same code.
    """

    def __init__(self, height: float, *, thumb: bool = False) -> None:
        self.height = height
        self.thumb = thumb
        self.shapes: list[Shape] = []

    def x(self, part: float) -> str:
        """Write a place as an attribute."""
        if self.thumb:
            return f"{_MARGIN + part * (THUMB_WIDTH - 2 * _MARGIN):.1f}"
        return f"{part * 100:.2f}%"

    def width(self, part: float) -> str:
        """Write a length as an attribute."""
        part = max(part, 0.0)
        return f"{part * (THUMB_WIDTH - 2 * _MARGIN):.1f}" if self.thumb else f"{part * 100:.2f}%"

    def line(self, look: str, x1: float, y1: float, x2: float, y2: float) -> None:
        self.shapes.append(self.line_of(look, x1, y1, x2, y2))

    def line_of(self, look: str, x1: float, y1: float, x2: float, y2: float) -> Shape:
        """Make a line without drawing it, for a place below what is drawn already."""
        return Shape(tag="line", attributes={"class": look, **self._ends(x1, y1, x2, y2)})

    def arrow(self, look: str, x1: float, y1: float, x2: float, y2: float) -> None:
        """Draw a line with a tip; the first word of `look` gives the tip its colour."""
        tip = look.split(maxsplit=1)[0] if look else ""
        tip = tip if tip in {"dead", "done", "retrying"} else "ink"
        self._add("line", f"arrow {look}", {**self._ends(x1, y1, x2, y2), "marker-end": f"url(#tip-{tip})"})

    def rect(
        self,
        look: str,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        title: str | None = None,
        event: int | None = None,
    ) -> None:
        place = {"x": self.x(x), "y": _px(y), "width": self.width(width), "height": _px(max(height, 0)), "rx": "2"}
        self._add("rect", look, place, title=title, event=event)

    def dot(
        self, look: str, x: float, y: float, r: float, *, title: str | None = None, event: int | None = None
    ) -> None:
        self._add("circle", look, {"cx": self.x(x), "cy": _px(y), "r": _px(r)}, title=title, event=event)

    def mark(
        self,
        name: str,
        look: str,
        x: float,
        y: float,
        size: float,
        *,
        dx: float = 0,
        title: str | None = None,
        event: int | None = None,
    ) -> None:
        """Draw a mark of the sprite around a place, `dx` pixels to the right of it."""
        place = {"href": f"#m-{name}", "x": self.x(x), "y": _px(y), "width": _px(size), "height": _px(size)}
        place["transform"] = f"translate({dx - size / 2:g} {-size / 2:g})"
        self._add("use", f"m {look}".strip(), place, title=title, event=event)

    def text(self, look: str, x: float, y: float, text: str, *, anchor: str = "start", dx: float = 0) -> None:
        attributes = {"x": self.x(x), "y": _px(y), "text-anchor": anchor}
        if dx:
            attributes["dx"] = _px(dx)
        self._add("text", look, attributes, text=text)

    def curve(self, look: str, points: Sequence[tuple[float, float]]) -> None:
        """Draw a line through places; stretched with the width, its stroke is not."""
        if not points:
            return
        if self.thumb:
            path = " ".join(f"{self.x(x)},{_px(y)}" for x, y in points)
            self._add("path", look, {"d": f"M{path}"})
        else:
            path = " ".join(f"{x * _CURVE_WIDTH:.0f},{_px(y)}" for x, y in points)
            self._add("curve", look, {"d": f"M{path}"})

    def _ends(self, x1: float, y1: float, x2: float, y2: float) -> dict[str, str]:
        return {"x1": self.x(x1), "y1": _px(y1), "x2": self.x(x2), "y2": _px(y2)}

    def _add(
        self,
        tag: Tag,
        look: str,
        attributes: dict[str, str],
        *,
        text: str | None = None,
        title: str | None = None,
        event: int | None = None,
    ) -> None:
        written = {"class": look, **attributes}
        self.shapes.append(Shape(tag=tag, attributes=written, text=text, title=title, event=event))

    def svg(self, alt: str, *, prefix: str = "", shown: frozenset[int] = frozenset()) -> str:
        """Write a large canvas. Marks whose event is `shown` in the page link to it."""
        inner = "".join(render(shape, prefix=prefix, shown=shown, height=self.height) for shape in self.shapes)
        linked = any(shape.event in shown for shape in self.shapes if shape.event is not None)
        role = "group" if linked else "img"
        return f'<svg height="{_px(self.height)}" role="{role}" aria-label="{escape(alt)}">{inner}</svg>'


def thumb_svg(shapes: Iterable[Shape], alt: str) -> str:
    """Write a thumbnail, without links."""
    inner = "".join(render(shape) for shape in shapes)
    return (
        f'<svg class="thumb" viewBox="0 0 {THUMB_WIDTH} {THUMB_HEIGHT}" role="img" aria-label="{escape(alt)}">'
        f"{inner}</svg>"
    )


def render(shape: Shape, *, prefix: str = "", shown: frozenset[int] = frozenset(), height: float = 0) -> str:
    """Write one shape."""
    tag = "path" if shape.tag == "curve" else shape.tag
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in shape.attributes.items() if value)
    link = shape.event is not None and shape.event in shown
    title = f"<title>{escape(shape.title)}</title>" if shape.title and not link else ""
    written = f"<{tag}{attributes}>{title}{escape(shape.text or '')}</{tag}>"
    if shape.tag == "curve":
        box = (
            f'viewBox="0 0 {_CURVE_WIDTH} {_px(height)}" width="100%" height="{_px(height)}" preserveAspectRatio="none"'
        )
        written = f"<svg {box}>{written}</svg>"
    if link:
        label = escape(shape.title or f"event {shape.event}")
        written = f'<a href="#{prefix}{shape.event}" aria-label="{label}">{written}</a>'
        written = written.replace(f"</{tag}></a>", f"<title>{label}</title></{tag}></a>")
    return written


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
