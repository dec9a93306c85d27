"""A pseudo-terminal for tests: a stream that is a terminal, and what a person sees on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
import threading
from typing import Self, TextIO

_PARTS = re.compile(r"\x1b\[(?P<codes>[?0-9;]*)(?P<verb>[A-Za-z])|(?P<text>[^\x1b\r\n]+)|(?P<move>[\r\n])")
UTF8 = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}


class Terminal:
    """A terminal of some width. Write to `stream` within the block; read what came of it after it."""

    def __init__(self, columns: int = 80) -> None:
        self._columns = columns
        self._read = bytearray()

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, self._columns, 0, 0))
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8", errors="backslashreplace")
        self._reader = threading.Thread(target=self._take)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self._reader.join()
        os.close(self._master)

    def _take(self) -> None:
        while True:
            try:
                part = os.read(self._master, 65_536)
            except OSError:  # The other end was closed.
                return
            if not part:
                return
            self._read += part

    @property
    def raw(self) -> str:
        """All that was written, with every code."""
        return self._read.decode().replace("\r\n", "\n")

    @property
    def screen(self) -> str:
        """What a person sees in the end."""
        return shown(self._read.decode())


def shown(written: str) -> str:
    """Do what a terminal does with text: lines without spaces at their ends, and without blank lines at the end."""
    rows: list[list[str]] = [[]]
    row = column = 0
    position = 0
    while position < len(written):
        part = _PARTS.match(written, position)
        assert part is not None, f"a terminal is not sent this: {written[position : position + 20]!r}"
        position = part.end()
        if text := part["text"]:
            for character in text:
                rows[row] += [" "] * (column + 1 - len(rows[row]))
                rows[row][column] = character
                column += 1
        elif part["move"] == "\r":
            column = 0
        elif part["move"] == "\n":
            row += 1
            rows += [[] for _ in range(row + 1 - len(rows))]
        elif part["verb"] == "A":
            row -= int(part["codes"] or 1)
        elif part["verb"] == "K":
            del rows[row][column:]
        elif part["verb"] == "J":
            del rows[row][column:]
            del rows[row + 1 :]
        else:
            assert part["verb"] in "mhl", part["verb"]
    lines = "\n".join("".join(line).rstrip() for line in rows)
    return lines.rstrip("\n") + "\n"
