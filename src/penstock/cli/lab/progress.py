"""The live lines of a scenario that runs: a bar for each variant, and the numbers of the one that runs."""

from __future__ import annotations

from penstock.cli.terminal.signs import Signs
from penstock.cli.terminal.text import Span
from penstock.cli.terminal.values import count, counted, duration
from penstock.lab.laboratory import Progress

BAR_CELLS = 24
_HALF = "╸"


class VariantBars:
    """What is shown of both variants while they run."""

    def __init__(self, signs: Signs, expected: int | None) -> None:
        self._signs = signs
        self._expected = expected
        self._over: dict[str, Progress] = {}
        self._last: Progress | None = None

    def note(self, progress: Progress) -> None:
        """Take in how far the variant is that runs."""
        if self._last is not None and self._last.variant != progress.variant:
            self._over[self._last.variant] = self._last
        self._last = progress

    def lines(self) -> list[list[Span]]:
        """Return the lines for what was noted last."""
        progress = self._last
        if progress is None:
            return []
        shown = [*self._over.values(), progress]
        return [*(self._bar(one, over=one is not progress) for one in shown), [], self._numbers(progress)]

    def _bar(self, progress: Progress, *, over: bool) -> list[Span]:
        total = max(self._expected or progress.sent, progress.sent, progress.done, 1)
        cells = BAR_CELLS if over else BAR_CELLS * progress.done / total
        whole = int(cells)
        half = _HALF if cells - whole >= 0.5 and not self._signs.ascii_only else ""
        left = self._signs.bar_left * (BAR_CELLS - whole - len(half))
        return [
            Span("  "),
            self._signs.of("done" if over else "running"),
            Span(f" {progress.variant:<9}  "),
            Span(self._signs.bar_done * whole + half),
            Span(left, "dim"),
            Span(f"{count(progress.done):>4} of {count(total)}"),
        ]

    def _numbers(self, progress: Progress) -> list[Span]:
        parts: list[Span] = [Span("    ")]
        for state, number, word in (
            ("ready", progress.waiting, "waiting"),
            ("running", progress.in_flight, "in flight"),
            ("done", progress.done, "done"),
            ("dead", progress.dead, "dead"),
        ):
            sign = self._signs.of(state)
            if number:
                parts += [sign, Span(f" {count(number)} {word}   ")]
            else:
                parts.append(Span(f"{sign.text} 0 {word}   ", "dim"))
        return [*parts, Span(f"{counted(progress.consumers, 'consumer')}   "), Span(duration(progress.took_s), "dim")]
