"""Bearer tokens: given as they are, or read from a file that may be replaced at any time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.client.errors import TokenInvalid

if TYPE_CHECKING:
    import os

LOOK_S = 1.0
"""How often a token file is looked at."""
_BYTES_MAX = 8_192


class Token:
    """The token to send with requests; empty if there is none. It is never shown."""

    __slots__ = ("_file", "_looked_at", "_stamp", "_text")

    def __init__(self, text: str | None = None, file: str | os.PathLike[str] | None = None) -> None:
        if text is not None and file is not None:
            raise TokenInvalid("Give a token or a token file, not both.")
        self._file = None if file is None else Path(file)
        self._text = "" if text is None else _checked(text, "The token")
        self._looked_at = 0.0
        self._stamp: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return "Token()" if self._file is None else f"Token(file={str(self._file)!r})"

    def current(self) -> str:
        """Return the token. Its file is read again once it has changed, which is looked for every second."""
        if self._file is not None:
            now = time.monotonic()
            if self._stamp is None or now - self._looked_at >= LOOK_S:
                self._look(now)
        return self._text

    def reread(self) -> bool:
        """Look at the file now, and return whether there is another token than before."""
        before = self._text
        if self._file is not None:
            self._look(time.monotonic())
        return self._text != before

    def _look(self, now: float) -> None:
        assert self._file is not None
        try:
            found = self._file.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                with self._file.open("rb") as opened:
                    read = opened.read(_BYTES_MAX + 1)
                self._text = _checked(read.decode("latin-1"), f"The token in {self._file}")
                self._stamp = stamp
        except OSError as error:
            if self._stamp is None:
                raise TokenInvalid(f"The token file {self._file} cannot be read: {error.strerror}.") from None
            # It is being replaced, perhaps: the token that was read last is used until there is another.
        self._looked_at = now


def _checked(text: str, what: str) -> str:
    text = text.strip()
    if not text or len(text) > _BYTES_MAX or not (text.isascii() and text.isprintable()) or " " in text:
        raise TokenInvalid(f"{what} is not one: it has to be printable ASCII without spaces.")
    return text
