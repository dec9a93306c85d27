"""Opens embedded stores: SQLite files that several processes share through one owner."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from penstock.client.errors import EmbeddedUnsupported

if TYPE_CHECKING:
    from penstock.client.embedded.dialer import OwnerDialer

IDLE_S = 10.0
"""How long an owner process that has no clients waits for more."""


def owner_dialer(
    path: str, *, owner: Literal["process", "thread"] = "process", start: bool = True, idle_s: float = IDLE_S
) -> OwnerDialer:
    """Return a dialer that connects to the owner of a SQLite file. Nothing is opened before it dials.

    An owner that is missing is started: as a process that all clients share and that ends `idle_s` after the last of
    them, or as a thread of this process. With `start=False` the dialer only looks for one.
    Raises `EmbeddedUnsupported` on Windows.
    """
    if sys.platform == "win32":
        raise EmbeddedUnsupported(
            "Embedded stores need Unix. On Windows run `penstock serve` and connect to its http:// address."
        )
    from penstock.client.embedded.dialer import OwnerDialer  # noqa: PLC0415  # It needs Unix.

    return OwnerDialer(path, owner=owner, start=start, idle_s=idle_s)
