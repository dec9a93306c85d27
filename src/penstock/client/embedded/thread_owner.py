"""The owner in a thread of this process, with the same lock, socket and protocol as a process of its own."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
from typing import TYPE_CHECKING

import uvloop

from penstock.client import forking
from penstock.client.errors import ConnectionFailed, OwnerNotStarted
from penstock.domain.errors import PenstockError
from penstock.server.config import ServerConfig, StartFailure
from penstock.server.owner import OwnerRole
from penstock.server.service import Service
from penstock.store.ownership.owner import Owner
from penstock.store.ownership.paths import socket_path

if TYPE_CHECKING:
    from collections.abc import Iterable

STOP_S_MAX = 15.0
"""More than a server that stops gives its clients to take their answers."""


class ThreadOwner:
    """An owner that serves until `stop`, or until this process ends.

    The thread is a daemon, as Python would wait for any other before it ends; and it is stopped at exit, so that the
    store is closed in good order. In a forked child there is no owner.
    """

    def __init__(self, path: str, lock: int) -> None:
        """Adopt the locked descriptor `lock`."""
        socket = socket_path(path)
        self._path = path
        self._forgotten = False
        self._owner = Owner(path, lock)
        self._service = Service(
            ServerConfig(socket=socket, store=f"sqlite:{path}"),
            self._note_ready,
            role=OwnerRole(self._owner, socket, on_demand=True),
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-owner", daemon=True)
        forking.register(self)

    def start(self, deadline: float) -> None:
        """Start to serve, and return once it does. Raises as `start_process` does."""
        atexit.register(self.stop)
        self._thread.start()
        if not self._settled.wait(max(0.0, deadline - time.monotonic())):
            raise ConnectionFailed(f"The owner of {self._path} was started and is not ready yet.")
        failure = self._failure
        if failure is not None:
            self.stop()
            reason = failure.reason if isinstance(failure, PenstockError) else str(failure)
            raise OwnerNotStarted(f"The owner of {self._path} could not start. {reason}") from failure

    def stop(self) -> None:
        """Stop serving, close the store, and let another process own the file."""
        atexit.unregister(self.stop)
        if self._forgotten or not self._thread.is_alive():
            return
        assert self._loop is not None
        # If it has stopped by itself, its loop is closed already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._service.stop)
        self._thread.join(STOP_S_MAX)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._service.run())
        except (PenstockError, StartFailure, OSError) as error:
            self._failure = error
        finally:
            self._settled.set()

    def _note_ready(self, _url: str) -> None:
        self._settled.set()

    def descriptors(self) -> Iterable[int]:
        """Return what a forked child must not keep. Its copy of SQLite's connection is left alone, as SQLite asks."""
        return [] if self._forgotten else [*self._owner.descriptors(), *self._service.descriptors()]

    def forget(self) -> None:
        """Be no owner, in a forked child: the thread is not there."""
        self._forgotten = True
        atexit.unregister(self.stop)
