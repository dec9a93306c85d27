"""A few lines at the foot of a terminal that are rewritten in place."""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Sequence
from typing import IO

from penstock.cli.terminal.colours import painted
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Line, cut_line

PER_SECOND_MAX = 4
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class LiveBlock:
    """Rewrites its lines at most four times a second. On a stream that cannot rewrite lines it writes nothing."""

    def __init__(self, stream: IO[str], screen: Screen) -> None:
        self._stream = stream
        self._screen = screen
        self._drawn = 0
        self._next_s = 0.0

    @property
    def due(self) -> bool:
        """Whether the next `show` would write."""
        return self._screen.movable and time.monotonic() >= self._next_s

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines, unless they were just written."""
        if not self.due:
            return
        self._next_s = time.monotonic() + 1 / PER_SECOND_MAX
        if not self._drawn:
            atexit.register(self.close)
        width = self._screen.width - 1
        text = "".join(painted(cut_line(line, width), colours=self._screen.colours) + "\n" for line in lines)
        self._put((_HIDE_CURSOR if not self._drawn else self._erase()) + text)
        self._drawn = len(lines)

    def close(self) -> None:
        """Remove the lines, and bring the cursor back."""
        if self._drawn:
            self._put(self._erase() + _SHOW_CURSOR)
            self._drawn = 0
            atexit.unregister(self.close)

    def _erase(self) -> str:
        return f"\x1b[{self._drawn}A\r\x1b[J"

    def _put(self, text: str) -> None:
        # Nobody may be left to read.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
