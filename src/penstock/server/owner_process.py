"""Where the owner process of an embedded store begins: it leaves whoever started it, and becomes the keeper."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import msgspec


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What the client that starts an owner process tells it."""

    path: str
    """The database file."""
    lock: int
    """The descriptor of the lock file, which is locked."""
    ready: int
    """The writing end of a pipe, for one `Started`."""
    idle_s: float
    """How long to wait for clients."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it: `error` says why there is no owner."""

    error: str | None = None


def main() -> NoReturn:
    """Run an owner until it ends of its own accord. The one argument is a `Start` as JSON."""
    start = msgspec.json.decode(sys.argv[1], type=Start)
    # The starter waits for the process that it started; so its own code never meets a child that it does not know.
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    # Only now, because it takes long.
    from penstock.server.keeper import keep  # noqa: PLC0415

    keep(start)
