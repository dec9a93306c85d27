"""Stopping a command that cleans up after itself: SIGTERM and SIGHUP do what Ctrl+C does."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from penstock.cli.failures import INTERRUPTED, Terminated
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span

_HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Terminated):
    """One of these signals came: SIGINT, SIGTERM or SIGHUP."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` at the first of the signals; those that follow must not interrupt the clean-up.

    Only a second Ctrl+C does. A signal that is ignored stays ignored, as under `nohup`.
    """

    def heed(number: int, _frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, signal.default_int_handler if one is signal.SIGINT else signal.SIG_IGN)
        raise Stopped(number)

    before = {one: handler for one in _HEEDED if (handler := signal.getsignal(one)) is not signal.SIG_IGN}
    for one in before:
        signal.signal(one, heed)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def say_stopped(reason: KeyboardInterrupt, more: str = "") -> int:
    """Say that a command was stopped, and return its exit code."""
    # The terminal may be gone.
    with contextlib.suppress(OSError):
        Screen(sys.stderr).write([[Span(" ".join(filter(None, ("Stopped.", more))))]])
    return 128 + reason.number if isinstance(reason, Stopped) else INTERRUPTED
