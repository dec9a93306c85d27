"""What calls are sent with, made on first use: connections to a peer, or an engine in this process."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol

from penstock.client.errors import Closed, WrongProcess

if TYPE_CHECKING:
    from penstock.client.embedded.in_process import InProcess
    from penstock.client.sync.caller import SyncSender
    from penstock.client.transport.asynchronous import AsyncTransport
    from penstock.client.transport.blocking import BlockingTransport
    from penstock.client.transport.peer import Peer
    from penstock.client.verbs.caller import AsyncSender


class Senders(Protocol):
    """A sender for async code and one for sync code."""

    def open_async(self) -> AsyncSender:
        """Return the one for async code."""

    def open_sync(self) -> SyncSender:
        """Return the one for sync code."""

    def look_after_store(self) -> None:
        """Run what comes due by itself, if the engine is in this process."""

    def close(self) -> None:
        """Close what sync code used."""

    async def aclose(self) -> None:
        """Close what sync code and this event loop used."""


class PeerSenders:
    """Senders over connections."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._closed = False
        # Threads that come first at the same time get the same one: `setdefault` is atomic, and there is no lock that
        # a fork could leave locked.
        self._async: dict[Peer, AsyncTransport] = {}
        self._sync: dict[Peer, BlockingTransport] = {}

    def open_async(self) -> AsyncSender:
        """Return the one for async code."""
        _refuse_if(self._closed)
        if (known := self._async.get(self._peer)) is not None:
            return known
        from penstock.client.transport.asynchronous import AsyncTransport  # noqa: PLC0415 - sync code needs none

        return self._async.setdefault(self._peer, AsyncTransport(self._peer))

    def open_sync(self) -> SyncSender:
        """Return the one for sync code."""
        _refuse_if(self._closed)
        if (known := self._sync.get(self._peer)) is not None:
            return known
        from penstock.client.transport.blocking import BlockingTransport  # noqa: PLC0415 - async code needs none

        return self._sync.setdefault(self._peer, BlockingTransport(self._peer))

    def look_after_store(self) -> None:
        """Do nothing: the server does that."""

    def close(self) -> None:
        """Close the connections of sync code. Those of an event loop end with it."""
        self._closed = True
        for transport in self._sync.values():
            transport.close()
        self._peer.close()

    async def aclose(self) -> None:
        """Close the connections of sync code and of this event loop."""
        self._closed = True
        for transport in self._async.values():
            await transport.close()
            await transport.on_thread(self.close)
        if not self._async:
            self.close()


class ProcessSenders:
    """Senders to an engine in this process. One in memory stays with the process that it was made in."""

    def __init__(self, url: str, connect_s: float) -> None:
        self._url = url
        self._connect_s = connect_s
        self._pid = os.getpid()
        self._closed = False
        self._running: InProcess | None = None

    def open_async(self) -> AsyncSender:
        """Return the one for async code."""
        return self._open().for_async

    def open_sync(self) -> SyncSender:
        """Return the one for sync code."""
        return self._open().for_sync

    def look_after_store(self) -> None:
        """Have the engine run what comes due by itself, from now on."""
        self._open().look_after_store()

    def close(self) -> None:
        """Stop the engine."""
        self._closed = True
        if self._running is not None and self._pid == os.getpid():
            self._running.close()

    async def aclose(self) -> None:
        """Stop the engine."""
        self._closed = True
        if self._running is not None and self._pid == os.getpid():
            await self._running.aclose()

    def _open(self) -> InProcess:
        _refuse_if(self._closed)
        running = self._running
        if running is not None and self._pid == os.getpid():
            return running
        from penstock.client.embedded.in_process import InProcess  # noqa: PLC0415 - only who needs it loads it

        with _opening:
            if self._pid != os.getpid():
                if self._url == "memory:":
                    raise WrongProcess(
                        "memory: belongs to the process that made it, and this is a forked child. "
                        "Use sqlite:PATH to share jobs between processes."
                    )
                # The parent's engine is kept as it is: to take it apart here would disturb its connections.
                _inherited.append(self._running)
                self._pid, self._running = os.getpid(), None
            if self._running is None:
                self._running = InProcess(self._url, self._connect_s)
            return self._running


_inherited: list[object] = []
_opening = threading.Lock()


def _renew_lock() -> None:
    """Have a lock in a forked child that no thread of the parent holds."""
    global _opening  # noqa: PLW0603 - there is no other way to replace it
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def _refuse_if(closed: bool) -> None:  # noqa: FBT001 - it says what it is at the call
    if closed:
        raise Closed("This Penstock was closed.")
