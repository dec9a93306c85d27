"""The keeper: has all that an owner needs loaded, opens nothing, and forks the owner, again if that is killed."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import msgspec

# Loaded by name elsewhere, and only when it is needed; here that is certain.
import penstock.store.sqlite.store  # noqa: F401
from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.server.config import ServerConfig, StartFailure
from penstock.server.logs import configure_logging
from penstock.server.owner import OwnerRole
from penstock.server.owner_process import Start, Started
from penstock.server.serving import serve
from penstock.store.ownership.owner import Owner
from penstock.store.ownership.paths import socket_path

if TYPE_CHECKING:
    from types import FrameType

DEATHS_MAX = 5
DEATHS_WITHIN_S = 10.0
"""An owner that is killed this often within this time is not replaced again."""


def keep(start: Start) -> NoReturn:
    """Run an owner, and another one whenever a signal kills it. This process holds the lock meanwhile."""
    owner = 0

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if owner != 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(owner, number)

    signal.signal(signal.SIGTERM, pass_on)
    # The garbage collector leaves alone what is there now, so that owners share this memory.
    gc.freeze()
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
    code = 1
    try:
        configure_logging(level="warning", form="console")
        socket = socket_path(start.path)
        role = OwnerRole(Owner(start.path, start.lock), socket, on_demand=True, idle_s=start.idle_s)
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


def _give_up(start: Start, last_signal: str) -> NoReturn:
    error = StoreUnavailable(
        f"The owner was killed {DEATHS_MAX} times in {DEATHS_WITHIN_S:g} s, last by {last_signal}."
    )
    _report(start, Started(error=error.reason))
    Owner(start.path, start.lock).release(error)
    os._exit(1)


def _report(start: Start, started: Started) -> None:
    """Answer whoever started this process, if it still listens."""
    with contextlib.suppress(OSError):
        os.write(start.ready, msgspec.json.encode(started) + b"\n")
