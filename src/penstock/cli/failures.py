"""Why a command did not do what it was asked to, and how that is shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from penstock.cli.terminal.colours import ColorChoice
from penstock.cli.terminal.problems import Kind, problem
from penstock.cli.terminal.screen import Screen

USAGE, DENIED, UNREACHABLE, INTERRUPTED = 2, 5, 6, 130
"""Exit codes. All else that goes wrong is 1."""


class Failure(Exception):
    """A command ends with this: what happened, why where that adds something, and what to try."""

    def __init__(
        self, what: str, *, why: Sequence[str] = (), hint: str = "", kind: Kind = "error", exit_code: int = 1
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint
        self.kind: Kind = kind
        self.exit_code = exit_code


class Terminated(KeyboardInterrupt):
    """SIGTERM came before there was anything to finish."""


def show(failure: Failure, color: ColorChoice = "auto") -> int:
    """Write a failure to stderr, and return the exit code that belongs to it."""
    screen = Screen(sys.stderr, color=color)
    screen.write(problem(screen, failure.kind, failure.what, why=failure.why, hint=failure.hint))
    return failure.exit_code


def failure_of(error: Exception, address: str) -> Failure:
    """Return the failure that an error of a call to the server at this address stands for."""
    from penstock.client import errors

    match error:
        case errors.NotAuthenticated():
            return Failure(
                f"The server at {address} does not accept the token.",
                why=[str(error)],
                hint="give the app a valid token: token=, token_file= or PENSTOCK_TOKEN_FILE",
                kind="denied",
                exit_code=DENIED,
            )
        case errors.AccessDenied():
            return Failure(
                f"The token does not allow this on the server at {address}.",
                why=[str(error)],
                hint="use a token that has the scope and the queues",
                kind="denied",
                exit_code=DENIED,
            )
        case errors.TransportError() | errors.OwnerError() | errors.StoreUnavailable() | errors.Overloaded():
            return Failure(f"Cannot reach {address}.", why=[str(error)], exit_code=UNREACHABLE)
        case errors.ServerTooOld():
            return Failure(str(error), hint="upgrade the server, then start the worker again")
    return Failure(str(error))
