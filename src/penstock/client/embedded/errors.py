"""What can go wrong between a client and the owner of an embedded store."""

from __future__ import annotations

from penstock.client.errors import ClientError


class OwnerError(ClientError):
    """The owner of an embedded store cannot be reached or started."""


class OwnerNotResponding(OwnerError):
    """The owner accepts connections and does not answer: it is stopped, or in a debugger. It is never killed."""

    def __init__(self, path: str, pid: int, waited_s: float) -> None:
        super().__init__(
            f"The owner of {path}, pid {pid}, has not answered for {waited_s:g} seconds. "
            "Nobody can take over while it lives: continue it (kill -CONT) or end it."
        )
        self.path = path
        self.pid = pid
        self.waited_s = waited_s

    def __reduce__(self) -> tuple[type[OwnerNotResponding], tuple[str, int, float]]:
        return type(self), (self.path, self.pid, self.waited_s)


class OwnerNotFound(OwnerError):
    """No process owns the file, and this client was told not to start one, or could not wait for one."""


class OwnerNotStarted(OwnerError):
    """An owner could not be started: the message says why."""


class OwnerAccessDenied(OwnerError):
    """The user of this process may not use the file."""


class EmbeddedUnsupported(OwnerError):
    """This platform cannot share a SQLite file between processes."""
