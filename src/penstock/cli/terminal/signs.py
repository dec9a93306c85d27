"""The signs of states, in Unicode and in ASCII, and when which are used."""

from __future__ import annotations

import locale
from collections.abc import Mapping

from penstock.cli.terminal.text import Span, Style, cut_middle, harmless

NAME_CELLS_MAX = 32
"""Longer names of queues are cut in the middle."""
_ID_START, _ID_END = 13, 4
_EAST_ASIAN = ("zh", "ja", "ko")
"""Languages in whose locales these signs may be two cells wide."""
_PLAIN_TERMINALS = frozenset({"linux", "dumb"})

_SIGNS: dict[str, tuple[str, str, Style]] = {
    "ready": ("●", "o", "blue"),
    "delayed": ("◔", "@", "magenta"),
    "offered": ("□", ".", "cyan"),
    "running": ("▣", "#", "cyan"),
    "retrying": ("↻", "~", "yellow"),
    "behind": ("◔", "@", "yellow"),
    "done": ("✓", "+", "green"),
    "dead": ("†", "X", "red"),
    "lost": ("✕", "x", "red"),
    "paused": ("‖", "=", "dim"),
    "cancelled": ("⊘", "/", "dim"),
    "unknown": ("?", "?", "dim"),
    "plain": (" ", " ", ""),
}
"""By state: the sign, what stands for it in ASCII, and the state's colour."""


class Signs:
    """The signs, all in Unicode or all in ASCII."""

    def __init__(self, *, ascii_only: bool) -> None:
        self.ascii_only = ascii_only
        self.ellipsis = ".." if ascii_only else "…"
        """Where a name or an id is cut."""
        self.bar_done = "=" if ascii_only else "━"
        self.bar_left = "." if ascii_only else "─"
        self.nothing = "-" if ascii_only else "–"
        """What stands where there is nothing."""
        self.rule = "|" if ascii_only else "│"

    def of(self, state: str) -> Span:
        """Return the sign of a state in its colour."""
        sign, plain, style = _SIGNS[state]
        return Span(plain if self.ascii_only else sign, style)

    def job(self, job_id: str) -> str:
        """Shorten the id of a job: enough to find it, since the start of an id is its time."""
        shown = harmless(job_id)
        if len(shown) <= _ID_START + _ID_END + len(self.ellipsis):
            return shown
        return f"{shown[:_ID_START]}{self.ellipsis}{shown[-_ID_END:]}"

    def name(self, name: str) -> str:
        """Make a name harmless, and cut it in the middle if it is long."""
        return cut_middle(harmless(name), NAME_CELLS_MAX, self.ellipsis)


def ascii_wanted(environment: Mapping[str, str], encoding: str | None = None) -> bool:
    """Return whether only ASCII may be written, with the `encoding` of the locale if it is not the system's own."""
    if environment.get("PENSTOCK_ASCII", "") not in ("", "0") or environment.get("TERM", "") in _PLAIN_TERMINALS:
        return True
    named = next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    if named.lower().partition("_")[0] in _EAST_ASIAN:
        return True
    if named:
        return "utf8" not in named.lower().replace("-", "")
    return "utf8" not in (encoding or locale.getpreferredencoding(do_setlocale=False)).lower().replace("-", "")
