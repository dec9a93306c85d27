"""Where everything is written: one stream, its width and its colours, and a live line at its foot."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from typing import IO

from penstock.cli.terminal.colours import ColorChoice, colours_wanted, painted
from penstock.cli.terminal.signs import Signs, ascii_wanted
from penstock.cli.terminal.text import Line, Span, cut_line

WIDTH_MIN, WIDTH_MAX = 80, 120
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_ERASE_LIVE = "\r\x1b[K\x1b[A\r\x1b[J"
"""The live line and the blank line above it."""


class Screen:
    """Writes lines to a stream, from any thread. A live line stays below them.

    Each call writes once, so that lines of other writers do not tear ours. The cursor is hidden while there is a live
    line; `close` brings it back, and so does the end of the process.
    """

    def __init__(
        self, stream: IO[str], *, color: ColorChoice = "auto", environment: Mapping[str, str] | None = None
    ) -> None:
        environment = os.environ if environment is None else environment
        self.terminal = stream.isatty()
        self.movable = self.terminal and environment.get("TERM") != "dumb"
        """Whether a line can be rewritten in place."""
        self.colours = colours_wanted(color, environment, terminal=self.terminal)
        self.signs = Signs(ascii_only=ascii_wanted(environment))
        self._stream = stream
        self._live: Line | None = None
        self._lock = threading.RLock()

    @property
    def width(self) -> int:
        """How wide text may be: as wide as the terminal, within limits, and 80 if nobody knows."""
        return min(max(self._columns(), WIDTH_MIN), WIDTH_MAX)

    def write(self, lines: Iterable[Line]) -> None:
        """Write lines, above the live line if there is one."""
        text = "".join(painted(line, colours=self.colours) + "\n" for line in lines)
        with self._lock:
            if self._live is None:
                self._put(text)
            else:
                self._put(_ERASE_LIVE + text + self._drawn(self._live))

    def write_text(self, text: str) -> None:
        """Write a line as it is."""
        self.write([[Span(text)]])

    def show(self, live: Line | None) -> None:
        """Replace the live line; with None, remove it. On a stream that cannot rewrite a line, nothing happens."""
        if not self.movable:
            return
        with self._lock:
            if live == self._live:
                return
            erase = _HIDE_CURSOR if self._live is None else _ERASE_LIVE
            if self._live is None:
                atexit.register(self.close)
            self._live = live
            self._put(erase + (_SHOW_CURSOR if live is None else self._drawn(live)))
            if live is None:
                atexit.unregister(self.close)

    @property
    def live(self) -> bool:
        """Whether there is a live line."""
        return self._live is not None

    def close(self) -> None:
        """Remove the live line and bring the cursor back."""
        self.show(None)

    def _drawn(self, live: Line) -> str:
        # One cell is left free: some terminals wrap as soon as the last one is filled.
        return "\n" + painted(cut_line(live, self._columns() - 1), colours=self.colours)

    def _columns(self) -> int:
        if not self.terminal:
            return WIDTH_MIN
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or WIDTH_MIN
        except (OSError, ValueError):
            return WIDTH_MIN

    def _put(self, text: str) -> None:
        # Nobody may be left to read: the terminal was closed, or the pipe was.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
