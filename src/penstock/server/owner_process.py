"""The owner process of an embedded store: a keeper that has everything loaded, and the owner that it forks."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import msgspec

if TYPE_CHECKING:
    from types import FrameType

DEATHS_MAX = 5
DEATHS_WITHIN_S = 10.0
"""An owner that is killed this often within this time is not replaced again."""


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
    """Leave whoever started this process, and keep an owner running until it ends of its own accord."""
    start = msgspec.json.decode(sys.argv[1], type=Start)
    # The starter waits for the process that it started, so that none of its own code meets a child that it does not know.
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    try:
        _load()
        # What is there now is left alone by the garbage collector, so that owners share the memory.
        gc.freeze()
        _keep(start)
    except BaseException as error:
        _report(start, Started(error=f"The owner process failed: {error!r}"))
        raise


def _load() -> None:
    """Import all that an owner needs, and open nothing: this process forks."""
    import penstock.server.serving
    import penstock.store.sqlite.store  # noqa: F401


def _keep(start: Start) -> NoReturn:
    """Run an owner, and another one whenever a signal kills it. The keeper holds the lock meanwhile."""
    owner = 0

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if owner != 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(owner, number)

    signal.signal(signal.SIGTERM, pass_on)
    deaths: list[float] = []
    while True:
        owner = os.fork()
        if owner == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _own(start)
        _, status = os.waitpid(owner, 0)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            os._exit(code)
        now = time.monotonic()
        deaths = [*(death for death in deaths if now - death < DEATHS_WITHIN_S), now]
        if len(deaths) >= DEATHS_MAX:
            _give_up(start, signal.Signals(-code).name)


def _own(start: Start) -> NoReturn:
    """Be the owner, and end this process."""
    from penstock.domain.errors import PenstockError
    from penstock.server.config import ServerConfig, StartFailure
    from penstock.server.logs import configure_logging
    from penstock.server.owner import OwnerRole
    from penstock.server.serving import serve
    from penstock.store.sqlite.owner import Owner, socket_path

    code = 1
    try:
        configure_logging(level="warning", form="console")
        socket = socket_path(start.path)
        role = OwnerRole(Owner(start.path, start.lock), socket, idle_s=start.idle_s, resigns=True)
        config = ServerConfig(socket=socket, store=f"sqlite:{start.path}")
        serve(config, lambda _url: _report(start, Started()), role=role)
        code = 0
    except StartFailure as failure:
        _report(start, Started(error=str(failure)))
    except PenstockError as error:
        _report(start, Started(error=error.reason))
    except BaseException as error:
        _report(start, Started(error=f"The owner process failed: {error!r}"))
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def _give_up(start: Start, signal_name: str) -> NoReturn:
    from penstock.domain.errors import StoreUnavailable
    from penstock.store.sqlite.owner import Owner

    error = StoreUnavailable(f"The owner was killed {DEATHS_MAX} times in {DEATHS_WITHIN_S:g} s, last by {signal_name}.")
    _report(start, Started(error=error.reason))
    Owner(start.path, start.lock).release(error)
    os._exit(1)


def _report(start: Start, started: Started) -> None:
    """Answer whoever started this process, if it still listens."""
    with contextlib.suppress(OSError):
        os.write(start.ready, msgspec.json.encode(started) + b"\n")
