"""What can go wrong with a task that runs in a child process."""

from __future__ import annotations

import signal as signals


class ChildError(Exception):
    """An assignment was not carried out. All errors that `Pool.run` raises by itself are such."""


class ChildFailed(ChildError):
    """The assignment raised an exception, or its child could not get as far as to run it."""

    def __init__(self, kind: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        """The name of the exception's class."""
        self.message = message
        self.traceback = traceback
        """The traceback as Python writes it; empty if there is none."""


class ChildDied(ChildError):
    """The child ended before the assignment did. Either `signal` or `exit_code` is set."""

    def __init__(self, *, signal: int | None = None, exit_code: int | None = None) -> None:
        cause = f"exited with code {exit_code}" if signal is None else f"was killed by {_name_of(signal)}"
        super().__init__(f"The process that ran the task {cause}.")
        self.signal = signal
        self.exit_code = exit_code


class PoolClosed(ChildError):
    """The pool was closed before the assignment ended."""

    def __init__(self) -> None:
        super().__init__("The pool of processes is closed.")


class FrameTooLarge(ChildError, ValueError):
    """An assignment, a request, an answer or a result is larger than a frame can be."""


class AskFailed(Exception):
    """Raised in the child by `Channel.ask`: the parent could not answer."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        """The name of the exception's class in the parent."""
        self.message = message


def _name_of(signal: int) -> str:
    try:
        return signals.Signals(signal).name
    except ValueError:
        return f"signal {signal}"  # A real-time signal has no name.
